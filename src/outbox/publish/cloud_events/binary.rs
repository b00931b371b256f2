//! Binary mode: attributes become header fields, the payload stays as it is.

use std::borrow::Cow;

use super::attributes;
use crate::outbox::PendingEvent;

/// How a protocol writes the attributes of an event into its own header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// `ce-id`, percent-encoded (HTTP binding 1.0, section 3.1.3).
    Http,
    /// `ce-id`, percent-encoded (NATS binding 1.0, section 3.1.3).
    Nats,
    /// `cloudEvents_id` (AMQP binding 1.0, section 3.1.3). It is written for AMQP 1.0, and used here for 0.9.1 likewise.
    Amqp,
    /// `ce_id` (Kafka binding 1.0, section 3.2.3).
    Kafka,
    /// `ce-id` as it is: Redis has no binding, and its fields take any bytes.
    Redis,
}

impl Binding {
    /// The header fields of an event: its attributes, its trace by the names of W3C Trace Context, then its own fields.
    ///
    /// An event's own field is left out where it has a name that belongs to the protocol or to an attribute: it could
    /// change whose message this is, or where it goes.
    #[must_use]
    pub fn fields(self, event: &PendingEvent) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let written = event.event();
        let mut fields = Vec::with_capacity(10 + written.headers().len());
        for (name, value) in attributes(event) {
            fields.push((format!("{}{name}", self.prefix()).into(), self.encoded(value)));
        }
        if let Some(trace) = written.trace_ref() {
            fields.push(("traceparent".into(), trace.traceparent.as_str().into()));
            if let Some(state) = &trace.tracestate {
                fields.push(("tracestate".into(), state.as_str().into()));
            }
        }
        for (name, value) in written.headers() {
            if !self.owns(name, written.trace_ref().is_some()) {
                fields.push((name.as_str().into(), value.as_str().into()));
            }
        }
        fields
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Http | Self::Nats | Self::Redis => "ce-",
            Self::Amqp => "cloudEvents_",
            Self::Kafka => "ce_",
        }
    }

    fn encoded(self, value: Cow<'_, str>) -> Cow<'_, str> {
        match self {
            Self::Http | Self::Nats => percent_encoded(value),
            Self::Amqp | Self::Kafka | Self::Redis => value,
        }
    }

    /// Whether a field of this name is the protocol's and not the event's.
    fn owns(self, name: &str, traced: bool) -> bool {
        let name = name.to_ascii_lowercase();
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let is = |names: &[&str]| names.contains(&name.as_str());
        if traced && is(&["traceparent", "tracestate"]) {
            return true;
        }
        match self {
            Self::Http => {
                begins(&["ce-", "proxy-", "webhook-"])
                    || is(&[
                        "connection",
                        "content-encoding",
                        "content-length",
                        "content-type",
                        "expect",
                        "host",
                        "keep-alive",
                        "te",
                        "trailer",
                        "transfer-encoding",
                        "upgrade",
                    ])
            }
            Self::Nats => begins(&["ce-", "nats-"]) || is(&["content-type"]),
            // A field CC or BCC is an address to RabbitMQ.
            Self::Amqp => begins(&["cloudevents_", "cloudevents:"]) || is(&["cc", "bcc"]),
            Self::Kafka => begins(&["ce_"]) || is(&["content-type"]),
            Self::Redis => begins(&["ce-"]) || is(&["content-type", "data"]),
        }
    }
}

/// Printable ASCII without the space, the quote and the percent sign stays; every other byte of the UTF-8 form becomes an
/// escape (HTTP binding, section 3.1.3.2).
fn percent_encoded(value: Cow<'_, str>) -> Cow<'_, str> {
    let stays = |byte: u8| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'%');
    if value.bytes().all(stays) {
        return value;
    }
    let mut encoded = String::with_capacity(value.len() + 16);
    for byte in value.bytes() {
        if stays(byte) {
            encoded.push(byte.into());
        } else {
            let hex = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
            encoded.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    encoded.into()
}
