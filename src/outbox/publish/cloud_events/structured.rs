//! Structured mode: the whole event is one JSON object (CloudEvents JSON Event Format 1.0).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::attributes;
use crate::outbox::PendingEvent;

/// The media type of [`structured`].
pub const STRUCTURED_JSON: &str = "application/cloudevents+json";

/// The event as one JSON object without a line break.
///
/// A payload that its media type calls JSON, and that is JSON, is the member `data`, its numbers and its spelling as they
/// were written; only line breaks between its tokens become spaces. Every other payload is `data_base64`, an empty one
/// without a media type is left out. The event's header fields are extension attributes, where their names can be: lower
/// case letters and digits (specification, section 3).
#[must_use]
pub fn structured(event: &PendingEvent) -> Vec<u8> {
    let written = event.event();
    let mut members: Map<String, Value> =
        attributes(event).into_iter().map(|(name, value)| (name.to_owned(), value.into_owned().into())).collect();
    for (name, value) in written.headers() {
        let is_attribute = !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
        let is_taken = RESERVED.contains(&name.as_str()) || members.contains_key(name);
        if is_attribute && !is_taken {
            members.insert(name.clone(), value.clone().into());
        }
    }
    if let Some(media_type) = written.content_type() {
        members.insert("datacontenttype".to_owned(), media_type.into());
    }
    let payload = written.payload_ref();
    let json = written.content_type().filter(|media_type| is_json(media_type)).and_then(|_| as_json(payload));
    if json.is_none() && !(payload.is_empty() && written.content_type().is_none()) {
        members.insert("data_base64".to_owned(), STANDARD.encode(payload).into());
    }
    let mut text = Value::Object(members).to_string().into_bytes();
    if let Some(json) = json {
        // In the place of the closing brace.
        text.pop();
        text.extend_from_slice(b",\"data\":");
        text.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
        text.push(b'}');
    }
    text
}

/// Members that no extension may be called.
const RESERVED: [&str; 5] = ["data", "data_base64", "datacontenttype", "dataschema", "subject"];

/// The payload, if it is one JSON text. A line break in it stands between tokens then: in a string it is escaped.
fn as_json(payload: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(payload).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok().map(|IgnoredAny| text)
}

fn is_json(media_type: &str) -> bool {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(media_type.as_str(), "application/json" | "text/json") || media_type.ends_with("+json")
}
