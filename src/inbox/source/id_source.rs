//! Where in a message its identity stands.

use std::fmt;
use std::sync::Arc;

use super::pointer::Pointer;
use super::{IdError, Incoming, cloud_events};
use crate::inbox::MessageId;

/// Where the identity of a message comes from. None is the default: what a sender calls the same message is the sender's
/// to say.
///
/// Where a format does not say who sent a message, `source` is the host's name for the sender or the stream, such as
/// `psp`: ids of two senders may be equal (M2). It is stored with every message, so another name makes them all new.
#[derive(Clone)]
pub struct IdSource(Reader);

type OfMessage = dyn Fn(&dyn Incoming) -> Result<MessageId, IdError> + Send + Sync;

#[derive(Clone)]
enum Reader {
    CloudEvents,
    Header { source: Arc<str>, name: Arc<str> },
    Broker { source: Arc<str> },
    Pointer { source: Origin, id: Arc<Pointer> },
    Function(Arc<OfMessage>),
}

/// Where the first half of an identity comes from.
#[derive(Clone, Debug)]
enum Origin {
    Named(Arc<str>),
    Pointer(Arc<Pointer>),
}

impl IdSource {
    /// `source` and `id` of a CloudEvent (version 1.0), in binary mode or in structured mode with JSON. An event keeps both
    /// whatever it travels by, so this is the one for what an outbox has sent.
    #[must_use]
    pub fn cloud_events() -> Self {
        Self(Reader::CloudEvents)
    }

    /// The header field `webhook-id` of Standard Webhooks. Verify the signature first: what nobody has signed can take an
    /// id away from its owner.
    #[must_use]
    pub fn standard_webhooks(source: &str) -> Self {
        Self::header(source, "webhook-id")
    }

    /// A header field, property or stream field of this name.
    #[must_use]
    pub fn header(source: &str, name: &str) -> Self {
        Self(Reader::Header { source: source.into(), name: name.into() })
    }

    /// What the broker names a message by:
    ///
    /// | broker | a name of the producer's | else the place |
    /// |---|---|---|
    /// | NATS JetStream | `Nats-Msg-Id` | stream and sequence |
    /// | RabbitMQ | the property `message_id` | none: [`IdError::Absent`] |
    /// | Kafka | the header `message-id` | topic, partition, offset |
    /// | Redis Streams | the field that [`RedisEntry::id_field`](super::RedisEntry::id_field) names | stream and entry id |
    ///
    /// A place tells redeliveries by the broker from each other. It does not tell what a producer has sent twice.
    #[must_use]
    pub fn broker(source: &str) -> Self {
        Self(Reader::Broker { source: source.into() })
    }

    /// The string or whole number that a JSON pointer (RFC 6901) finds in the body, such as `/event/id`. A name that stands
    /// twice in an object on its way is refused, and what is no pointer finds nothing.
    #[must_use]
    pub fn pointer(source: &str, id: &str) -> Self {
        Self(Reader::Pointer { source: Origin::Named(source.into()), id: Arc::new(Pointer::new(id)) })
    }

    /// The same, with a pointer to who sent it.
    #[must_use]
    pub fn pointers(source: &str, id: &str) -> Self {
        let origin = Origin::Pointer(Arc::new(Pointer::new(source)));
        Self(Reader::Pointer { source: origin, id: Arc::new(Pointer::new(id)) })
    }

    /// A function of your own.
    pub fn from_fn(f: impl Fn(&dyn Incoming) -> Result<MessageId, IdError> + Send + Sync + 'static) -> Self {
        Self(Reader::Function(Arc::new(f)))
    }

    /// The identity of a message.
    ///
    /// # Errors
    /// [`IdError`]: the message has none, and will have none when it comes again.
    pub fn read(&self, message: &(impl Incoming + ?Sized)) -> Result<MessageId, IdError> {
        match &self.0 {
            Reader::CloudEvents => {
                let (source, id) = cloud_events::read(message)?;
                identity((&source, "source of a CloudEvent"), (&id, "id of a CloudEvent"))
            }
            Reader::Header { source, name } => {
                let value = message.header(name)?.ok_or_else(|| IdError::absent(name))?;
                named(source, &value, name)
            }
            Reader::Broker { source } => message.broker_id(source),
            Reader::Pointer { source, id } => {
                let source = match source {
                    Origin::Named(name) => name.to_string(),
                    Origin::Pointer(pointer) => pointer.text_in(message.payload())?,
                };
                identity((&source, "source"), (&id.text_in(message.payload())?, "id in the body"))
            }
            Reader::Function(f) => f(&message),
        }
    }
}

/// The identity by a name that the producer gave.
pub(super) fn named(source: &str, id: &[u8], what: &str) -> Result<MessageId, IdError> {
    let id = std::str::from_utf8(id).map_err(|_| IdError::NotText(what.to_owned()))?;
    identity((source, "source"), (id, what))
}

/// The identity by the place in a log. The log becomes part of the source, so that no name that a producer gives can be
/// the place of another message.
pub(super) fn placed(source: &str, log: &[&str], place: &str) -> Result<MessageId, IdError> {
    identity((&format!("{source}#{}", log.join("/")), "source"), (place, "place"))
}

fn identity((source, source_is): (&str, &str), (id, id_is): (&str, &str)) -> Result<MessageId, IdError> {
    if source.is_empty() {
        return Err(IdError::Empty(source_is.to_owned()));
    }
    MessageId::new(source, id).map_err(|_| IdError::Empty(id_is.to_owned()))
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reader::CloudEvents => f.write_str("IdSource::cloud_events"),
            Reader::Header { source, name } => f.debug_tuple("IdSource::header").field(source).field(name).finish(),
            Reader::Broker { source } => f.debug_tuple("IdSource::broker").field(source).finish(),
            Reader::Pointer { source, id } => f.debug_tuple("IdSource::pointer").field(source).field(id).finish(),
            Reader::Function(_) => f.write_str("IdSource::from_fn(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::inbox::source::KafkaRecord;

    fn webhook(fields: &[(&'static str, &'static str)], body: &'static str) -> http::Request<Bytes> {
        let mut request = http::Request::builder();
        for (name, value) in fields {
            request = request.header(*name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request.body(Bytes::from_static(body.as_bytes())).unwrap()
    }

    fn id(source: &str, id: &str) -> MessageId {
        MessageId::new(source, id).unwrap()
    }

    // M9, M2
    #[test]
    fn standard_webhooks_are_named_by_their_id_and_the_hosts_name_for_the_sender() {
        let source = IdSource::standard_webhooks("psp");
        assert_eq!(source.read(&webhook(&[("webhook-id", "msg_1")], "")).unwrap(), id("psp", "msg_1"));
        assert_ne!(source.read(&webhook(&[("webhook-id", "msg_1")], "")).unwrap(), id("other", "msg_1"));
        assert!(matches!(source.read(&webhook(&[], "")), Err(IdError::Absent(_))));
        assert!(matches!(source.read(&webhook(&[("webhook-id", "")], "")), Err(IdError::Empty(_))));
        let twice = [("webhook-id", "a"), ("webhook-id", "b")];
        assert!(matches!(source.read(&webhook(&twice, "")), Err(IdError::Repeated(_))));
        let mut not_text = webhook(&[], "");
        not_text.headers_mut().insert("webhook-id", http::HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(matches!(source.read(&not_text), Err(IdError::NotText(_))));
    }

    // M2
    #[test]
    fn letters_that_look_alike_are_other_ids() {
        let source = IdSource::pointer("psp", "/id");
        let read = |body| source.read(&webhook(&[], body)).unwrap();
        let composed = read("{\"id\":\"caf\u{e9}\"}");
        assert_ne!(composed, read("{\"id\":\"cafe\u{301}\"}"));
        assert_ne!(read(r#"{"id":"A"}"#), read(r#"{"id":"a"}"#));
        assert_ne!(read(r#"{"id":"a "}"#), read(r#"{"id":"a"}"#));
    }

    // M2: an id of any length is one.
    #[test]
    fn a_long_id_is_an_id() {
        let (one, two) = ("x".repeat(4000), "x".repeat(4001));
        let named = |id: &str| named("psp", id.as_bytes(), "id").unwrap();
        assert_eq!(named(&one), named(&one));
        assert_ne!(named(&one), named(&two));
    }

    // M9
    #[test]
    fn pointers_find_source_and_id() {
        let source = IdSource::pointers("/from", "/event/id");
        let read = |body| source.read(&webhook(&[], body));
        assert_eq!(read(r#"{"from":"a","event":{"id":7}}"#).unwrap(), id("a", "7"));
        assert!(matches!(read(r#"{"from":"","event":{"id":7}}"#), Err(IdError::Empty(_))));
        assert!(matches!(read(r#"{"event":{"id":7}}"#), Err(IdError::Absent(_))));
    }

    // M9
    #[test]
    fn a_record_of_kafka_has_a_name_or_a_place() {
        let source = IdSource::broker("orders");
        let place = KafkaRecord { topic: "o".into(), partition: 1, offset: 7, ..KafkaRecord::default() };
        assert_eq!(source.read(&place).unwrap(), id("orders#o/1", "7"));
        let named = KafkaRecord { headers: vec![("message-id".into(), Bytes::from_static(b"7"))], ..place.clone() };
        assert_eq!(source.read(&named).unwrap(), id("orders", "7"));
        let mut twice = named.clone();
        twice.headers.push(("message-id".into(), Bytes::from_static(b"8")));
        assert!(matches!(source.read(&twice), Err(IdError::Repeated(_))));
        let event = KafkaRecord {
            headers: vec![
                ("ce_id".into(), Bytes::from_static(b"100%25")),
                ("ce_source".into(), Bytes::from_static("/caf\u{e9}".as_bytes())),
            ],
            ..place
        };
        assert_eq!(IdSource::cloud_events().read(&event).unwrap(), id("/café", "100%25"), "not percent-encoded there");
    }

    #[test]
    fn a_function_of_your_own_sees_the_whole_message() {
        let source = IdSource::from_fn(|message| {
            let length = message.payload().len().to_string();
            MessageId::new("length", length).map_err(|_| IdError::Empty("length".into()))
        });
        assert_eq!(source.read(&webhook(&[], "abc")).unwrap(), id("length", "3"));
    }

    #[test]
    fn what_has_no_broker_has_no_id_of_one() {
        assert!(matches!(IdSource::broker("x").read(&webhook(&[], "")), Err(IdError::Absent(_))));
    }
}
