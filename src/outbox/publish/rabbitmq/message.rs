//! An event as AMQP 0.9.1 has it.

use std::time::UNIX_EPOCH;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::outbox::PendingEvent;
use crate::outbox::publish::cloud_events::Binding;

const PERSISTENT: u8 = 2;

/// The routing key and the properties. `None`: AMQP cannot express them; names have at most 255 bytes.
pub(super) fn parts(event: &PendingEvent) -> Option<(ShortString, BasicProperties)> {
    let written = event.event();
    let mut headers = FieldTable::default();
    for (name, value) in Binding::Amqp.fields(event) {
        headers.insert(short(&name)?, AMQPValue::LongString(value.into_owned().into()));
    }
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short(&event.id().to_string())?)
        .with_type(short(written.kind())?)
        .with_headers(headers);
    if let Some(media_type) = written.content_type() {
        properties = properties.with_content_type(short(media_type)?);
    }
    if let Ok(since) = event.occurred_at().duration_since(UNIX_EPOCH) {
        properties = properties.with_timestamp(since.as_secs());
    }
    Some((short(written.topic())?, properties))
}

/// At least what the properties have on the wire.
pub(super) fn header_bytes(event: &PendingEvent) -> usize {
    let written = event.event();
    // A field is a length, a name, a type, a length and a value.
    let fields: usize = Binding::Amqp.fields(event).iter().map(|(name, value)| name.len() + value.len() + 6).sum();
    fields + written.kind().len() + written.content_type().map_or(0, str::len) + 128
}

fn short(text: &str) -> Option<ShortString> {
    ShortString::try_new(text.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::outbox::Event;
    use crate::outbox::publish::testing::pending;

    fn event(event: Event) -> PendingEvent {
        pending(event, SystemTime::now(), 0)
    }

    #[test]
    fn names_are_short() {
        let long = "x".repeat(256);
        let fits = Event::new("out", &long[1..], &long[1..], "/s");
        assert!(parts(&event(fits.clone())).is_some());
        assert!(parts(&event(Event::new("out", &long, "t", "/s"))).is_none());
        assert!(parts(&event(Event::new("out", "", &long, "/s"))).is_none());
        assert!(parts(&event(fits.clone().payload(&long, ""))).is_none());
        assert!(parts(&event(fits.header(&long, ""))).is_none());
    }
}
