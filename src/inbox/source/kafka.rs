//! Records of Kafka, without a client of Kafka.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::{IdError, Incoming};
use crate::inbox::MessageId;

/// A record as a consumer of Kafka gets it, filled in from whatever client the host uses.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaRecord {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// The place in the partition.
    pub offset: i64,
    /// The headers in their order; a name may come again.
    pub headers: Vec<(String, Bytes)>,
    /// The value.
    pub payload: Bytes,
}

/// The header that names a record, where the producer sets one.
const MESSAGE_ID: &str = "message-id";

/// CloudEvents as its Kafka binding has them: `ce_id`, in UTF-8 and not percent-encoded (section 3.2.3).
impl Incoming for KafkaRecord {
    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        let mut found = self.headers.iter().filter(|(header, _)| header == name);
        let first = found.next();
        if found.next().is_some() {
            return Err(IdError::Repeated(format!("header {name}")));
        }
        Ok(first.map(|(_, value)| Cow::Borrowed(value.as_ref())))
    }

    fn cloud_event_attribute(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        self.header(&format!("ce_{name}"))
    }

    /// The header `message-id`; without one, the record's place: topic, partition and offset.
    fn broker_id(&self, source: &str) -> Result<MessageId, IdError> {
        match self.header(MESSAGE_ID)? {
            Some(id) => super::id_source::named(source, id.as_ref(), "header message-id"),
            None => {
                super::id_source::placed(source, &[&self.topic, &self.partition.to_string()], &self.offset.to_string())
            }
        }
    }
}

impl fmt::Debug for KafkaRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaRecord")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}
