//! Rows of the outbox in Rust types, for all engines alike: their texts give the columns the same names.

use std::time::Duration;

use uuid::Uuid;

use crate::outbox::{Bucket, Event, PendingEvent, Place, TraceContext, headers};

/// The columns of an event as they are read.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub(crate) bucket: i16,
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) destination: String,
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) content_type: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    pub(crate) occurred: i64,
    pub(crate) redrives: i64,
}

/// Reads a row whose columns are those of an event. `$text` and `$texts` read a text and one that may be absent.
macro_rules! event_row {
    ($row:expr, $text:path, $texts:path) => {{
        let row = $row;
        $crate::db::outbox::columns::EventRow {
            bucket: row.try_get("bucket")?,
            seq: row.try_get("seq")?,
            id: $text(row, "id")?,
            destination: $text(row, "destination")?,
            topic: $text(row, "aggregatetype")?,
            key: $texts(row, "aggregateid")?,
            kind: $text(row, "type")?,
            source: $text(row, "source")?,
            content_type: $texts(row, "content_type")?,
            payload: row.try_get("payload")?,
            headers: $texts(row, "headers")?,
            traceparent: $texts(row, "traceparent")?,
            tracestate: $texts(row, "tracestate")?,
            occurred: row.try_get("occurred")?,
            redrives: row.try_get("redrives")?,
        }
        .into_pending()
    }};
}

pub(crate) use event_row;

impl EventRow {
    pub(crate) fn into_pending(self) -> Result<PendingEvent, sqlx::Error> {
        let tracestate = self.tracestate;
        Ok(PendingEvent {
            place: place(self.bucket, self.seq)?,
            id: id(&self.id)?,
            event: Event {
                id: None,
                destination: self.destination,
                topic: self.topic,
                kind: self.kind,
                source: self.source,
                key: self.key,
                content_type: self.content_type,
                payload: self.payload.into(),
                headers: headers::from_text(self.headers.as_deref()).map_err(|error| unreadable(error.to_string()))?,
                trace: self.traceparent.map(|traceparent| TraceContext { traceparent, tracestate }),
                due: None,
            },
            occurred: self.occurred,
            redrives: count(self.redrives),
        })
    }
}

pub(crate) fn place(bucket: i16, seq: i64) -> Result<Place, sqlx::Error> {
    Ok(Place { bucket: self::bucket(bucket)?, seq })
}

pub(crate) fn bucket(number: i16) -> Result<Bucket, sqlx::Error> {
    let bucket = u8::try_from(number).ok().and_then(Bucket::new);
    bucket.ok_or_else(|| unreadable(format!("there is no bucket {number}")))
}

pub(crate) fn id(text: &str) -> Result<Uuid, sqlx::Error> {
    Uuid::parse_str(text).map_err(|error| unreadable(error.to_string()))
}

/// A count that a column holds as a signed number.
pub(crate) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// A length in microseconds, none below zero.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The first 1,000 bytes, or a little less, of what a publisher said; without NUL, which not every engine keeps in a text.
pub(crate) fn error_text(error: &str) -> String {
    let mut end = error.len().min(1_000);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error[..end].replace('\0', " ")
}

/// A JSON array.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn json(items: impl IntoIterator<Item: Into<serde_json::Value>>) -> serde_json::Value {
    serde_json::Value::Array(items.into_iter().map(Into::into).collect())
}

/// Rows as a JSON array of `[bucket, number, id]`.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) fn triples(rows: impl IntoIterator<Item = (Place, Uuid)>) -> String {
    let triple = |(place, id): (Place, Uuid)| serde_json::json!([place.bucket.number(), place.seq, id.to_string()]);
    json(rows.into_iter().map(triple)).to_string()
}

/// For plans: a poll of every bucket, and acks of many events.
#[cfg(feature = "testing")]
pub(crate) fn for_plans() -> (Vec<super::From>, Vec<super::Acked>) {
    let ack = |bucket, seq| super::Acked { place: Place { bucket, seq }, id: Uuid::nil() };
    let from = Bucket::all().map(|bucket| super::From { bucket, after: 0, most: 4 }).collect();
    (from, Bucket::all().flat_map(|bucket| (1..=4).map(move |seq| ack(bucket, seq))).collect())
}

fn unreadable(what: String) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}
