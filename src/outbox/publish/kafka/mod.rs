//! Kafka.

mod builder;
mod judge;
mod record;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, Producer as _};

use super::{Answer, Publisher, Publishing, Reason};
use crate::outbox::PendingEvent;

pub use builder::KafkaPublisherBuilder;

/// Publishes to Kafka. An event's topic is the topic, its key the key of the record. **Preview**: it is tested on the mock
/// cluster of librdkafka and on no broker.
///
/// - Acked is what all replicas in sync have (`acks=all`), once, as far as one process goes (`enable.idempotence`). A
///   restarted process writes again what was unknown; consumers drop it by the header `ce_id`.
/// - Every delivery report is awaited. What librdkafka gives up after its time may be in the log: [`Answer::Unknown`]. That
///   is also what an outage is, since librdkafka does not say whether it has sent a record.
/// - The partition is that of Java's clients (`murmur2_random`); librdkafka's own default would send a key elsewhere.
///   Records without a key go anywhere. Adding partitions to a topic moves keys, and so breaks their order.
/// - The event is a CloudEvent in binary mode.
/// - It does not [keep an ordered pipeline](Publisher::keeps_order): when a record fails, librdkafka goes on with the ones
///   behind it.
///
/// The crate `rdkafka` compiles librdkafka, with a C compiler and make. TLS, SASL and compression are chosen by its features
/// in the host.
#[derive(Clone)]
pub struct KafkaPublisher {
    shared: Arc<Shared>,
}

struct Shared {
    config: ClientConfig,
    max_event_bytes: usize,
    producer: Mutex<FutureProducer>,
}

impl KafkaPublisher {
    /// For the cluster that these brokers belong to: `host:9092`, with commas between.
    pub fn builder(brokers: &str) -> KafkaPublisherBuilder {
        KafkaPublisherBuilder::new(brokers)
    }

    fn producer(&self) -> FutureProducer {
        self.shared.producer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A producer that has met a fatal error never sends again: another one takes its place.
    fn replace_if_fatal(&self) {
        let mut producer = self.shared.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if producer.client().fatal_error().is_some()
            && let Ok(next) = self.shared.config.create()
        {
            *producer = next;
        }
    }

    async fn attempt(&self, event: &PendingEvent) -> Answer {
        let Some(headers) = record::headers(event) else { return Answer::never(Reason::Malformed) };
        let reported = self.producer().send_result(record::record(event, headers));
        let answer = match reported {
            Ok(report) => match report.await {
                Ok(Ok(_)) => return Answer::ACKED,
                Ok(Err((error, _))) => judge::delivered(&error),
                // The producer is gone.
                Err(_) => Answer::Unknown,
            },
            Err((error, _)) => judge::queued(&error),
        };
        self.replace_if_fatal();
        answer
    }
}

impl Publisher for KafkaPublisher {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move { self.attempt(&event).await })
    }

    fn max_event_bytes(&self) -> Option<usize> {
        Some(self.shared.max_event_bytes)
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisher").field("max_event_bytes", &self.shared.max_event_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
