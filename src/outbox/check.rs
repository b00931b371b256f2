//! What can be enqueued.

use super::enqueue::EnqueueError;
use super::event::{Event, TraceContext};

/// The longest name, topic or key, in bytes.
const LONGEST: usize = 255;
/// The longest `tracestate` that is kept (Trace Context section 3.3.1.1 asks for at least this).
const LONGEST_STATE: usize = 512;

/// Refuses what some destination or engine could not take as it is: sizes, characters, names.
pub(super) fn check(event: &Event, limit: usize) -> Result<(), EnqueueError> {
    let invalid = |what| Err(EnqueueError::Invalid(what));
    if !is_name(&event.destination) || event.destination.is_empty() {
        return invalid("a destination is a name of 1 to 255 bytes without control characters");
    }
    if !is_name(&event.topic) {
        return invalid("a topic is a text of at most 255 bytes without control characters");
    }
    if !is_name(&event.kind) || event.kind.is_empty() {
        return invalid("a type is a name of 1 to 255 bytes without control characters");
    }
    if !is_name(&event.source) || event.source.is_empty() {
        return invalid("a source is a name of 1 to 255 bytes without control characters");
    }
    if !event.key.as_deref().is_none_or(is_name) {
        return invalid("a key is a text of at most 255 bytes without control characters");
    }
    if !event.content_type.as_deref().is_none_or(is_name) {
        return invalid("a content type is a text of at most 255 bytes without control characters");
    }
    if !event.headers.iter().all(|(name, value)| is_token(name) && !value.contains(|c: char| c.is_control())) {
        return invalid("a header field has a token as its name and no control characters in its value");
    }
    let size = event.size();
    if size > limit {
        return Err(EnqueueError::TooLarge { size, limit });
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    text.len() <= LONGEST && !text.contains(|c: char| c.is_control())
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_tchar)
}

/// A trace context as far as it is well-formed.
pub(super) fn well_formed(trace: TraceContext) -> Option<TraceContext> {
    is_traceparent(&trace.traceparent).then_some(())?;
    let is_state = |state: &String| {
        (1..=LONGEST_STATE).contains(&state.len()) && state.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
    };
    Some(TraceContext { tracestate: trace.tracestate.filter(is_state), ..trace })
}

/// Trace Context section 3.2.2: of version 00, or of a later one that begins like it.
fn is_traceparent(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut part = |length: usize| {
        parts
            .next()
            .filter(|part| part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
    };
    let (Some(version), Some(trace), Some(span), Some(_)) = (part(2), part(32), part(16), part(2)) else {
        return false;
    };
    let is_zero = |digits: &str| digits.bytes().all(|byte| byte == b'0');
    text.len() <= LONGEST
        && version != "ff"
        && !is_zero(trace)
        && !is_zero(span)
        && (version != "00" || parts.next().is_none())
        && !text.contains(|c: char| c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::new("broker", "orders", "order.placed", "/orders")
    }

    fn refused(event: &Event) -> bool {
        matches!(check(event, 1_000), Err(EnqueueError::Invalid(_)))
    }

    // M21, case B61: what a destination cannot take is refused before it is written.
    #[test]
    fn what_cannot_be_sent_is_refused() {
        assert!(check(&event().key("").bytes("x"), 1_000).is_ok());
        assert!(check(&Event::new("d", "", "t", "s"), 1_000).is_ok());
        let long = "k".repeat(256);
        for wrong in [
            Event::new("", "t", "k", "s"),
            Event::new("d", "t", "", "s"),
            Event::new("d", "t", "k", ""),
            Event::new(&*long, "t", "k", "s"),
            Event::new("d", &*long, "k", "s"),
            Event::new("d", "t\n", "k", "s"),
            event().key(&*long),
            event().key("a\0b"),
            event().payload("text/plain\r\nx: y", "x"),
            event().header("", "v"),
            event().header("a b", "v"),
            event().header("a", "v\r\nb: c"),
        ] {
            assert!(refused(&wrong), "{wrong:?}");
        }
        assert!(matches!(
            check(&event().bytes(vec![0; 1_000]), 1_000),
            Err(EnqueueError::TooLarge { size: 1_031, limit: 1_000 })
        ));
        let names = event().size();
        assert!(check(&event().bytes(vec![0; 1_000 - names]), 1_000).is_ok());
    }

    // M21
    #[test]
    fn a_malformed_trace_is_left_out() {
        let trace = |traceparent: &str, tracestate: Option<&str>| {
            well_formed(TraceContext { traceparent: traceparent.to_owned(), tracestate: tracestate.map(str::to_owned) })
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(trace(good, Some("a=b")).unwrap().tracestate.as_deref(), Some("a=b"));
        assert_eq!(trace(good, Some("a\n")).unwrap().tracestate, None);
        assert!(trace("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later", None).is_some());
        for bad in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert!(trace(bad, None).is_none(), "{bad}");
        }
    }
}
