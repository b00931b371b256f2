//! Entries of Redis Streams.

use std::borrow::Cow;
use std::fmt;

use redis::Value;
use redis::streams::StreamId;

use super::{IdError, Incoming, id_source};
use crate::inbox::MessageId;

/// An entry of a Redis stream, as XREADGROUP and XAUTOCLAIM give it out.
#[derive(Clone)]
pub struct RedisEntry {
    stream: String,
    entry: StreamId,
    payload: String,
    id: Option<String>,
    deliveries: Option<u64>,
}

impl RedisEntry {
    /// An entry of the stream with this name. Its payload is the field `data`.
    #[must_use]
    pub fn new(stream: impl Into<String>, entry: StreamId) -> Self {
        Self { stream: stream.into(), entry, payload: "data".to_owned(), id: None, deliveries: None }
    }

    /// Another field has the payload. An entry without it has an empty one.
    #[must_use]
    pub fn payload_field(self, name: impl Into<String>) -> Self {
        Self { payload: name.into(), ..self }
    }

    /// The producer's name for the message stands in this field. Without such a field the entry's id names it.
    #[must_use]
    pub fn id_field(self, name: impl Into<String>) -> Self {
        Self { id: Some(name.into()), ..self }
    }

    /// How often it was delivered, as XPENDING says, this time included.
    #[must_use]
    pub fn delivered(self, times: u64) -> Self {
        Self { deliveries: Some(times), ..self }
    }

    /// The entry's id, for XACK.
    #[must_use]
    pub fn entry_id(&self) -> &str {
        &self.entry.id
    }

    /// The name of its stream.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.stream
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        match self.entry.map.get(name)? {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The fields of an entry are its headers. CloudEvents have no binding for Redis: attributes are fields as over HTTP,
/// `ce-id`, but not percent-encoded, since a field takes any bytes.
impl Incoming for RedisEntry {
    fn payload(&self) -> &[u8] {
        self.field(&self.payload).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        Ok(self.field(name).map(Cow::Borrowed))
    }

    fn cloud_event_attribute(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        self.header(&format!("ce-{name}"))
    }

    /// The field that [`RedisEntry::id_field`] names, else the entry's id in its stream.
    fn broker_id(&self, source: &str) -> Result<MessageId, IdError> {
        match &self.id {
            Some(name) => {
                let id = self.field(name).ok_or_else(|| IdError::Absent(format!("field {name}")))?;
                id_source::named(source, id, name)
            }
            None => id_source::placed(source, &[&self.stream], &self.entry.id),
        }
    }

    fn deliveries(&self) -> Option<u64> {
        self.deliveries
    }
}

impl fmt::Debug for RedisEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEntry")
            .field("stream", &self.stream)
            .field("entry", &self.entry.id)
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::source::IdSource;

    fn entry(fields: &[(&str, &str)]) -> RedisEntry {
        let map = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::BulkString(value.as_bytes().to_vec())));
        RedisEntry::new("orders", StreamId { id: "1-0".to_owned(), map: map.collect(), ..StreamId::default() })
    }

    fn id(source: &str, id: &str) -> MessageId {
        MessageId::new(source, id).unwrap()
    }

    // M9, M2
    #[test]
    fn an_entry_is_named_by_a_field_or_by_its_place() {
        let plain = entry(&[("data", "x"), ("id", "evt_1")]);
        assert_eq!(plain.payload(), b"x");
        assert_eq!(IdSource::broker("shop").read(&plain).unwrap(), id("shop#orders", "1-0"));
        assert_eq!(IdSource::broker("shop").read(&plain.clone().id_field("id")).unwrap(), id("shop", "evt_1"));
        assert!(matches!(IdSource::broker("shop").read(&plain.clone().id_field("none")), Err(IdError::Absent(_))));
        assert!(matches!(IdSource::header("shop", "none").read(&plain), Err(IdError::Absent(_))));
        let event = entry(&[("ce-id", "100%25"), ("ce-source", "/s")]).payload_field("body");
        assert_eq!(event.payload(), b"");
        assert_eq!(IdSource::cloud_events().read(&event).unwrap(), id("/s", "100%25"));
    }

    // M6
    #[test]
    fn deliveries_are_what_the_host_has_asked_for() {
        assert_eq!(entry(&[]).deliveries(), None);
        assert_eq!(entry(&[]).delivered(3).deliveries(), Some(3));
    }
}
