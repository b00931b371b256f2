//! An event as a record.

use std::time::UNIX_EPOCH;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

use crate::outbox::PendingEvent;
use crate::outbox::publish::cloud_events::Binding;

/// Kafka's limit on the name of a topic.
const LONGEST_TOPIC: usize = 249;

/// The record of an event.
pub(super) fn record(event: &PendingEvent, headers: OwnedHeaders) -> FutureRecord<'_, str, [u8]> {
    let written = event.event();
    let mut record = FutureRecord::to(written.topic()).payload(&written.payload_ref()[..]).headers(headers);
    // No key is not the same as an empty one, which has a partition like every other key.
    if let Some(key) = written.key_ref() {
        record = record.key(key);
    }
    let since = event.occurred_at().duration_since(UNIX_EPOCH).ok().map(|since| since.as_millis());
    match since.and_then(|millis| i64::try_from(millis).ok()) {
        Some(millis) => record.timestamp(millis),
        None => record,
    }
}

/// Its headers. `None`: Kafka cannot express the event.
pub(super) fn headers(event: &PendingEvent) -> Option<OwnedHeaders> {
    let written = event.event();
    if !is_topic(written.topic()) {
        return None;
    }
    let mut headers = OwnedHeaders::new();
    for (name, value) in Binding::Kafka.fields(event) {
        // librdkafka takes names as C strings.
        if name.contains('\0') {
            return None;
        }
        headers = headers.insert(Header { key: &name, value: Some(&*value) });
    }
    if let Some(media_type) = written.content_type() {
        headers = headers.insert(Header { key: "content-type", value: Some(media_type) });
    }
    Some(headers)
}

fn is_topic(topic: &str) -> bool {
    !matches!(topic, "" | "." | "..")
        && topic.len() <= LONGEST_TOPIC
        && topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}
