//! An event as a request.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::{Request, Url};

use super::sign::{Sign, ToSign};
use crate::outbox::PendingEvent;
use crate::outbox::publish::cloud_events::{Binding, STRUCTURED_JSON, structured};

/// How an event is written (CloudEvents, HTTP binding 1.0, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Binary,
    Structured,
}

/// `None`: HTTP cannot express it.
pub(super) fn request(
    base: &Url,
    mode: Mode,
    sign: Option<&dyn Sign>,
    event: &PendingEvent,
    now: SystemTime,
) -> Option<Request> {
    let mut headers = HeaderMap::new();
    let (body, media_type) = match mode {
        Mode::Binary => (event.event().payload_ref().clone(), event.event().content_type()),
        Mode::Structured => (Bytes::from(structured(event)), Some(STRUCTURED_JSON)),
    };
    for (name, value) in Binding::Http.fields(event) {
        // In structured mode the attributes are in the object.
        if mode == Mode::Binary || !name.starts_with("ce-") {
            headers
                .append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
    }
    if let Some(media_type) = media_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(media_type.as_bytes()).ok()?);
    }
    if let Some(sign) = sign {
        let signed = sign.sign(&ToSign { event, headers: &headers, body: &body, now });
        headers.extend(signed);
    }
    let mut request = Request::new(Method::POST, url(base, event.event().topic())?);
    *request.headers_mut() = headers;
    *request.body_mut() = Some(body.into());
    Some(request)
}

/// The topic as a path below the base. Whatever it says, it stays below: its dots, question marks, escapes and slashes lead nowhere
/// else.
fn url(base: &Url, topic: &str) -> Option<Url> {
    let mut url = base.clone();
    if !topic.is_empty() {
        let steps = topic.strip_prefix('/').unwrap_or(topic).split('/');
        // A URL would leave these out.
        if steps.clone().any(|step| matches!(step, "." | "..")) {
            return None;
        }
        url.path_segments_mut().ok()?.pop_if_empty().extend(steps);
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_stays_below_its_base() {
        let at = |base: &str, topic: &str| url(&Url::parse(base).unwrap(), topic).map(String::from);
        let hooks = "https://e.example/hooks?token=t";
        assert_eq!(at(hooks, "").as_deref(), Some(hooks));
        for (topic, path) in [
            ("orders", "/hooks/orders"),
            ("/orders/placed", "/hooks/orders/placed"),
            ("a?b#c", "/hooks/a%3Fb%23c"),
            ("//evil.example/x", "/hooks//evil.example/x"),
            ("caf\u{e9} 1", "/hooks/caf%C3%A9%201"),
            ("a%2fb", "/hooks/a%252fb"),
            ("%2e%2E/x", "/hooks/%252e%252E/x"),
        ] {
            assert_eq!(at(hooks, topic), Some(format!("https://e.example{path}?token=t")), "{topic}");
        }
        assert_eq!(at("https://e.example/", "a").as_deref(), Some("https://e.example/a"));
        assert_eq!(at("https://e.example/x/", "a").as_deref(), Some("https://e.example/x/a"));
        for topic in ["..", "a/../../b", "./a", "/.."] {
            assert_eq!(at(hooks, topic), None, "{topic}");
        }
    }
}
