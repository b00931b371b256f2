//! What an error of librdkafka means for an event, by its code.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::outbox::publish::{Answer, Reason};

/// The record was not taken into the queue: it was not sent.
pub(super) fn queued(error: &KafkaError) -> Answer {
    match error.rdkafka_error_code().and_then(about_the_event) {
        Some(answer) => answer,
        // The queue is full, or the producer has met a fatal error.
        None => Answer::UNAVAILABLE,
    }
}

/// The delivery report. Whatever librdkafka gave up after it may have sent it is unknown, its time-out first of all.
pub(super) fn delivered(error: &KafkaError) -> Answer {
    let Some(code) = error.rdkafka_error_code() else { return Answer::Unknown };
    match code {
        // It never left the queue.
        Code::PurgeQueue | Code::Authentication | Code::SaslAuthenticationFailed => Answer::UNAVAILABLE,
        _ => about_the_event(code).unwrap_or(Answer::Unknown),
    }
}

/// Codes by which a broker, or librdkafka before it sends, refuses a record for what it is.
fn about_the_event(code: Code) -> Option<Answer> {
    Some(match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            Answer::never(Reason::TooLarge)
        }
        Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition => Answer::refused(Reason::Missing),
        Code::InvalidTopic => Answer::never(Reason::Malformed),
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Answer::refused(Reason::Denied),
        Code::InvalidMessage | Code::InvalidTimestamp | Code::PolicyViolation | Code::InvalidDifferentRecord => {
            Answer::refused(Reason::Rejected)
        }
        _ => return None,
    })
}
