//! The context attributes of an event (CloudEvents 1.0, section 3).

use std::borrow::Cow;

use crate::outbox::PendingEvent;

/// `specversion`, `id`, `source`, `type`, `time`, and where there are such `subject`, `traceparent` and `tracestate`.
///
/// `subject` is the event's key; an empty key is none, since a subject is never empty (section 3.1). `time` is when the
/// event was enqueued. The media type of the data is not among them: every binding has its own place for it.
#[must_use]
pub fn attributes(event: &PendingEvent) -> Vec<(&'static str, Cow<'_, str>)> {
    let written = event.event();
    let mut attributes = Vec::with_capacity(8);
    attributes.push(("specversion", Cow::Borrowed("1.0")));
    attributes.push(("id", event.id().to_string().into()));
    attributes.push(("source", written.source().into()));
    attributes.push(("type", written.kind().into()));
    if let Some(key) = written.key_ref().filter(|key| !key.is_empty()) {
        attributes.push(("subject", key.into()));
    }
    attributes.push(("time", humantime::format_rfc3339_micros(event.occurred_at()).to_string().into()));
    if let Some(trace) = written.trace_ref() {
        // The extension "Distributed Tracing".
        attributes.push(("traceparent", trace.traceparent.as_str().into()));
        if let Some(state) = &trace.tracestate {
            attributes.push(("tracestate", state.as_str().into()));
        }
    }
    attributes
}
