//! An event on its way: as the application writes it, and as a publisher gets it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use uuid::Uuid;

use super::bucket::{Bucket, Place};

/// Something that has happened, to be published once its transaction is committed.
///
/// ```
/// use idempotency::outbox::Event;
///
/// let event = Event::new("broker", "orders.placed", "order.placed", "/orders")
///     .key("customer-7")
///     .payload("application/json", r#"{"order": 1}"#)
///     .header("tenant", "t1");
/// assert_eq!(event.key_ref(), Some("customer-7"));
/// ```
///
/// Nothing is checked here: what cannot be sent is refused when it is enqueued. Names and the key are text of at most 255
/// bytes each. `Debug` shows neither key nor payload nor header values.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub(crate) id: Option<Uuid>,
    pub(crate) destination: String,
    pub(crate) topic: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) key: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) trace: Option<TraceContext>,
    /// Microseconds since 1970.
    pub(crate) due: Option<i64>,
}

/// Where an event comes from, in the W3C's form (Trace Context, sections 3.2 and 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The field `traceparent`.
    pub traceparent: String,
    /// The field `tracestate`, where there is one.
    pub tracestate: Option<String>,
}

impl Event {
    /// An event without key, payload and header fields.
    ///
    /// - `destination`: the name under which a relay knows the publisher.
    /// - `topic`: where to at that destination: a subject, a routing key, a stream, a path. May be empty.
    /// - `kind`, `source`: `type` and `source` of CloudEvents 1.0 (section 3.1): what happened, and where.
    #[must_use]
    pub fn new(
        destination: impl Into<String>,
        topic: impl Into<String>,
        kind: impl Into<String>,
        source: impl Into<String>,
    ) -> Self {
        Self {
            id: None,
            destination: destination.into(),
            topic: topic.into(),
            kind: kind.into(),
            source: source.into(),
            key: None,
            content_type: None,
            payload: Bytes::new(),
            headers: Vec::new(),
            trace: None,
            due: None,
        }
    }

    /// An id of your own, such as one that all attempts at an operation share. Without it one is drawn when the event is
    /// enqueued (a UUID of version 7). It stays the same however often the event is published.
    #[must_use]
    pub fn id(self, id: Uuid) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Events of one destination and key are published in order, one at a time. Keys are compared byte for byte; an empty
    /// one is a key too. Without a key there is no order.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// What it says, byte for byte, and the media type of that.
    #[must_use]
    pub fn payload(self, content_type: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self { content_type: Some(content_type.into()), payload: payload.into(), ..self }
    }

    /// The same for bytes without a media type.
    #[must_use]
    pub fn bytes(self, payload: impl Into<Bytes>) -> Self {
        Self { content_type: None, payload: payload.into(), ..self }
    }

    /// Adds a header field. The name is a token (RFC 9110 section 5.6.2), the value has no control characters.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The trace that the event belongs to. What is malformed is left out when the event is enqueued: a trace never stops
    /// an event.
    #[must_use]
    pub fn trace(self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// Not before this time, by the database's clock. It takes its place in its key's order when it is due.
    #[must_use]
    pub fn deliver_after(self, time: SystemTime) -> Self {
        Self { due: Some(micros(time)), ..self }
    }

    /// The id of its own, where it was given one.
    #[must_use]
    pub fn id_ref(&self) -> Option<&Uuid> {
        self.id.as_ref()
    }

    /// The name of the publisher.
    #[must_use]
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Where to at the destination.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What happened: CloudEvents' `type`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Where it happened: CloudEvents' `source`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The ordering key.
    #[must_use]
    pub fn key_ref(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The payload's media type.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The payload.
    #[must_use]
    pub fn payload_ref(&self) -> &Bytes {
        &self.payload
    }

    /// The header fields, in the order in which they were added.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The trace that it belongs to.
    #[must_use]
    pub fn trace_ref(&self) -> Option<&TraceContext> {
        self.trace.as_ref()
    }

    /// The bytes of all its parts together: what the size limit looks at.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let trace = self
            .trace
            .as_ref()
            .map_or(0, |trace| trace.traceparent.len() + trace.tracestate.as_ref().map_or(0, String::len));
        let names = [&self.destination, &self.topic, &self.kind, &self.source];
        names.iter().map(|name| name.len()).sum::<usize>()
            + self.key.as_ref().map_or(0, String::len)
            + self.content_type.as_ref().map_or(0, String::len)
            + self.payload.len()
            + headers
            + trace
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("destination", &self.destination)
            .field("topic", &self.topic)
            .field("kind", &self.kind)
            .field("source", &self.source)
            .field("has_key", &self.key.is_some())
            .field("bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// An event that is committed and waits in the outbox: what relays read and publishers get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    pub(crate) place: Place,
    pub(crate) id: Uuid,
    pub(crate) event: Event,
    /// Microseconds since 1970, by the database's clock.
    pub(crate) occurred: i64,
    pub(crate) redrives: u32,
}

impl PendingEvent {
    /// As if it had been read from this row, for tests of publishers. `occurred_at`: when it was enqueued. `redrives`: how
    /// often an operator has had it published anew.
    #[must_use]
    pub fn new(place: Place, id: Uuid, event: Event, occurred_at: SystemTime, redrives: u32) -> Self {
        Self { place, id, event, occurred: micros(occurred_at), redrives }
    }

    /// Its row.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Its bucket.
    #[must_use]
    pub fn bucket(&self) -> Bucket {
        self.place.bucket
    }

    /// The same on every publication and redrive.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// What the application has written.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// When it was enqueued, by the database's clock: CloudEvents' `time`.
    #[must_use]
    pub fn occurred_at(&self) -> SystemTime {
        let distance = Duration::from_micros(self.occurred.unsigned_abs());
        let time = if self.occurred < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        time.unwrap_or(UNIX_EPOCH)
    }

    /// How often an operator has had it published anew.
    #[must_use]
    pub fn redrives(&self) -> u32 {
        self.redrives
    }

    /// What a broker that drops repetitions may compare: the id, and after a redrive `{id}#{n}`, since a redrive is meant to
    /// arrive (M35). Consumers compare [`PendingEvent::id`].
    #[must_use]
    pub fn delivery_id(&self) -> String {
        match self.redrives {
            0 => self.id.to_string(),
            redrives => format!("{}#{redrives}", self.id),
        }
    }
}

/// Microseconds since 1970, as far as they fit.
fn micros(time: SystemTime) -> i64 {
    let clamp = |distance: Duration| i64::try_from(distance.as_micros()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => clamp(since),
        Err(before) => -clamp(before.duration()),
    }
}
