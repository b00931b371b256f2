//! What the readers see of a message.

use std::borrow::Cow;
use std::sync::Arc;

use super::IdError;
use super::cloud_events::percent_decoded;
use crate::inbox::MessageId;

/// A message, whatever brought it.
///
/// Implemented for `http::Request` with a buffered body, for [`KafkaRecord`](super::KafkaRecord), and behind the features
/// `nats`, `rabbitmq` and `redis` for what those clients receive. A type of your own needs [`payload`](Incoming::payload)
/// and [`header`](Incoming::header).
pub trait Incoming {
    /// The body. Of two deliveries with one identity it must be the same, byte for byte (M5).
    fn payload(&self) -> &[u8];

    /// The header field, property or stream field of this name.
    ///
    /// # Errors
    /// [`IdError::Repeated`] where it is there more than once.
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError>;

    /// The media type of the body: the field `content-type` unless the protocol has a place of its own.
    ///
    /// # Errors
    /// As [`header`](Incoming::header).
    fn content_type(&self) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        self.header("content-type")
    }

    /// An attribute of a CloudEvent in binary mode. Unless the protocol's binding says otherwise: the field `ce-` and the
    /// name, percent-encoded as the HTTP binding has it (section 3.1.3.2).
    ///
    /// # Errors
    /// As [`header`](Incoming::header).
    fn cloud_event_attribute(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        Ok(self.header(&format!("ce-{name}"))?.map(percent_decoded))
    }

    /// The identity by the broker's own means; `source` is what the host calls this sender. See
    /// [`IdSource::broker`](super::IdSource::broker).
    ///
    /// # Errors
    /// [`IdError`]; [`IdError::Absent`] where there is no broker.
    fn broker_id(&self, source: &str) -> Result<MessageId, IdError> {
        let _ = source;
        Err(IdError::absent("id of a broker"))
    }

    /// How often the broker has delivered it, this time included; `None` where it does not count (M6).
    fn deliveries(&self) -> Option<u64> {
        None
    }
}

macro_rules! forwarded {
    () => {
        fn payload(&self) -> &[u8] {
            (**self).payload()
        }

        fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
            (**self).header(name)
        }

        fn content_type(&self) -> Result<Option<Cow<'_, [u8]>>, IdError> {
            (**self).content_type()
        }

        fn cloud_event_attribute(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
            (**self).cloud_event_attribute(name)
        }

        fn broker_id(&self, source: &str) -> Result<MessageId, IdError> {
            (**self).broker_id(source)
        }

        fn deliveries(&self) -> Option<u64> {
            (**self).deliveries()
        }
    };
}

/// So that a consumer keeps what it acknowledges by.
impl<M: Incoming + ?Sized> Incoming for Arc<M> {
    forwarded!();
}

impl<M: Incoming + ?Sized> Incoming for &M {
    forwarded!();
}
