//! The settings of a Kafka publisher.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::ClientConfig;

use super::{KafkaPublisher, Shared};
use crate::error::{Error, ErrorKind};

/// What a record needs beside an event's own bytes.
const OVERHEAD: usize = 4096;
/// librdkafka's own default of `message.max.bytes`.
const LARGEST: usize = 1_000_000;

/// Settings that the publisher's promises rest on, and what they are.
const FIXED: [(&str, &str); 3] = [("acks", "all"), ("enable.idempotence", "true"), ("partitioner", "murmur2_random")];
/// Other names of those, and what the builder has words of its own for.
const TAKEN: [&str; 7] = [
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "message.timeout.ms",
    "metadata.broker.list",
    "request.required.acks",
    "transactional.id",
];

/// Builds a [`KafkaPublisher`].
#[must_use]
pub struct KafkaPublisherBuilder {
    brokers: String,
    deadline: Duration,
    settings: Vec<(String, String)>,
}

impl KafkaPublisherBuilder {
    pub(super) fn new(brokers: &str) -> Self {
        Self { brokers: brokers.to_owned(), deadline: Duration::from_secs(10), settings: Vec::new() }
    }

    /// How long librdkafka may try to deliver a record, its own retries included (10 s; `message.timeout.ms`).
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// A setting of librdkafka, such as `security.protocol` or `linger.ms`.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The publisher. It connects in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: a setting that librdkafka does not have or was not built for, or one that the publisher's
    /// promises rest on (`acks`, `enable.idempotence`, `partitioner`, …).
    pub fn build(self) -> Result<KafkaPublisher, Error> {
        let mut config = ClientConfig::new();
        let deadline = self.deadline.as_millis();
        config.set("bootstrap.servers", &self.brokers).set("message.timeout.ms", deadline.to_string());
        // A topic that is not there is said to be so within the deadline.
        config.set("topic.metadata.propagation.max.ms", (deadline / 2).to_string());
        let mut largest = LARGEST;
        for (name, value) in &self.settings {
            if TAKEN.contains(&name.as_str()) || FIXED.iter().any(|(fixed, _)| fixed == name) {
                return Err(Error::with_source(ErrorKind::Setup, format!("the setting {name} is the publisher's own")));
            }
            if name == "message.max.bytes" {
                largest = value.parse().unwrap_or(LARGEST);
            }
            config.set(name, value);
        }
        for (name, value) in FIXED {
            config.set(name, value);
        }
        // The text of librdkafka's error may repeat a value, which may be a password.
        let producer = config
            .create()
            .map_err(|_| Error::with_source(ErrorKind::Setup, "librdkafka does not take these settings"))?;
        Ok(KafkaPublisher {
            shared: Arc::new(Shared {
                config,
                max_event_bytes: largest.saturating_sub(OVERHEAD),
                producer: Mutex::new(producer),
            }),
        })
    }
}

impl fmt::Debug for KafkaPublisherBuilder {
    // A value may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisherBuilder")
            .field("brokers", &self.brokers)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
