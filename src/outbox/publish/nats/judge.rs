//! What an error of JetStream means for an event, by its kind and codes.

use std::error::Error as _;

use async_nats::jetstream::context::{GetStreamByNameError, GetStreamByNameErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::{Error as ApiError, ErrorCode};

use crate::outbox::publish::{Answer, Reason};

pub(super) enum Said {
    Answer(Answer),
    /// No responders.
    NobodyListens,
}

pub(super) fn judge(error: &PublishError) -> Said {
    Said::Answer(match error.kind() {
        PublishErrorKind::StreamNotFound => return Said::NobodyListens,
        PublishErrorKind::MaxPayloadExceeded => Answer::never(Reason::TooLarge),
        PublishErrorKind::MaxAckPending => Answer::UNAVAILABLE,
        // It was sent, and the answer did not come, or the connection went.
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => Answer::Unknown,
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence => Answer::refused(Reason::Rejected),
        PublishErrorKind::Other => match error.source().and_then(|source| source.downcast_ref::<ApiError>()) {
            Some(error) => by_code(error.code(), error.error_code()),
            // An answer that cannot be read, or a client that is closed.
            None => Answer::Unknown,
        },
    })
}

/// An answer of the server: it has not kept the message. Its status is like one of HTTP.
fn by_code(status: usize, code: ErrorCode) -> Answer {
    match code {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => Answer::never(Reason::TooLarge),
        ErrorCode::STREAM_NOT_MATCH | ErrorCode::STREAM_NOT_FOUND => Answer::refused(Reason::Missing),
        // Among these: a full stream that discards new messages, no leader, not enough resources.
        _ if status >= 500 => Answer::UNAVAILABLE,
        _ => Answer::refused(Reason::Rejected),
    }
}

pub(super) fn is_no_stream(error: &GetStreamByNameError) -> bool {
    matches!(error.kind(), GetStreamByNameErrorKind::NotFound)
}

/// Whether a message can have this subject: tokens with dots between, no blanks, no wildcards.
pub(super) fn is_subject(subject: &str) -> bool {
    subject.split('.').all(|token| {
        !token.is_empty()
            && token != "*"
            && token != ">"
            && !token.chars().any(|char| char.is_whitespace() || char.is_control())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects() {
        for subject in ["orders", "orders.placed", "a.b*.c>", "caf\u{e9}"] {
            assert!(is_subject(subject), "{subject}");
        }
        for subject in ["", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\r\nPUB b 0", "a\tb", "a\0"] {
            assert!(!is_subject(subject), "{subject:?}");
        }
    }

    // M34, case B10: by codes.
    #[test]
    fn what_the_server_says() {
        assert_eq!(by_code(400, ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM), Answer::never(Reason::TooLarge));
        assert_eq!(by_code(400, ErrorCode::STREAM_NOT_MATCH), Answer::refused(Reason::Missing));
        assert_eq!(by_code(503, ErrorCode::STREAM_STORE_FAILED), Answer::UNAVAILABLE);
        assert_eq!(by_code(503, ErrorCode::CLUSTER_NOT_AVAILABLE), Answer::UNAVAILABLE);
        assert_eq!(by_code(400, ErrorCode::STREAM_SEALED), Answer::refused(Reason::Rejected));
    }

    #[test]
    fn what_the_client_says() {
        let said = |kind| match judge(&PublishError::new(kind)) {
            Said::Answer(answer) => Some(answer),
            Said::NobodyListens => None,
        };
        assert_eq!(said(PublishErrorKind::StreamNotFound), None);
        assert_eq!(said(PublishErrorKind::MaxPayloadExceeded), Some(Answer::never(Reason::TooLarge)));
        assert_eq!(said(PublishErrorKind::TimedOut), Some(Answer::Unknown));
        assert_eq!(said(PublishErrorKind::BrokenPipe), Some(Answer::Unknown));
        assert_eq!(said(PublishErrorKind::Other), Some(Answer::Unknown));
    }
}
