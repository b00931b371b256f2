//! Where a request's key comes from (H4).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Key, KeyError};

/// The field of the IETF draft draft-ietf-httpapi-idempotency-key-header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where a request's key comes from: by default the header field `Idempotency-Key`.
#[derive(Clone)]
pub struct KeySource(Source);

type OfHead = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type OfRequest = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;

#[derive(Clone)]
enum Source {
    Headers(Arc<[HeaderName]>),
    Head(Arc<OfHead>),
    Request(Arc<OfRequest>),
}

/// A key, and the field it came in if it came in one.
#[derive(Clone)]
pub(crate) struct FoundKey {
    pub(crate) key: Key,
    /// As received, to be echoed (H39).
    pub(crate) field: Option<(HeaderName, HeaderValue)>,
}

impl KeySource {
    /// A header field of another name.
    #[must_use]
    pub fn header(name: HeaderName) -> Self {
        Self::headers([name])
    }

    /// The first of several header fields that a request has. A request that has several with different keys is
    /// malformed.
    pub fn headers(names: impl IntoIterator<Item = HeaderName>) -> Self {
        Self(Source::Headers(names.into_iter().collect()))
    }

    /// A function of the request's head. Its text is the key itself, not a header field's value: no quotes.
    pub fn from_head(f: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Source::Head(Arc::new(f)))
    }

    /// A function of head and body. Every guarded request is buffered, those without a key too.
    pub fn from_request(f: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Source::Request(Arc::new(f)))
    }

    /// The string or whole number that a JSON pointer (RFC 6901) finds in the body, such as `/id`. A body that is not
    /// JSON, or where the pointer finds nothing else, has no key.
    pub fn pointer(pointer: impl Into<String>) -> Self {
        let pointer = pointer.into();
        Self::from_request(move |_, body| {
            let document: serde_json::Value = serde_json::from_slice(body).ok()?;
            match document.pointer(&pointer)? {
                serde_json::Value::String(text) => Some(text.clone()),
                serde_json::Value::Number(number) if !number.is_f64() => Some(number.to_string()),
                _ => None,
            }
        })
    }

    pub(crate) fn reads_body(&self) -> bool {
        matches!(self.0, Source::Request(_))
    }

    /// The key that the head holds. `Ok(None)`: none, or the body has to be read.
    pub(crate) fn in_head(&self, parts: &Parts) -> Result<Option<FoundKey>, KeyError> {
        match &self.0 {
            Source::Headers(names) => in_headers(names, &parts.headers),
            Source::Head(f) => from_text(f(parts)),
            Source::Request(_) => Ok(None),
        }
    }

    /// The key that the body holds.
    pub(crate) fn in_request(&self, parts: &Parts, body: &Bytes) -> Result<Option<FoundKey>, KeyError> {
        match &self.0 {
            Source::Request(f) => from_text(f(parts, body)),
            Source::Headers(_) | Source::Head(_) => Ok(None),
        }
    }
}

fn from_text(text: Option<String>) -> Result<Option<FoundKey>, KeyError> {
    text.map(|text| Ok(FoundKey { key: Key::new(&text)?, field: None })).transpose()
}

fn in_headers(names: &[HeaderName], headers: &HeaderMap) -> Result<Option<FoundKey>, KeyError> {
    let mut found: Option<FoundKey> = None;
    for name in names {
        let mut lines = headers.get_all(name).iter();
        let Some(value) = lines.next() else { continue };
        if lines.next().is_some() {
            return Err(KeyError::SeveralValues);
        }
        let key = Key::parse(value.as_bytes())?;
        match &found {
            Some(first) if first.key != key => return Err(KeyError::SeveralValues),
            Some(_) => {}
            None => found = Some(FoundKey { key, field: Some((name.clone(), value.clone())) }),
        }
    }
    Ok(found)
}

impl Default for KeySource {
    fn default() -> Self {
        Self::header(IDEMPOTENCY_KEY)
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Headers(names) => f.debug_tuple("KeySource::headers").field(names).finish(),
            Source::Head(_) => f.write_str("KeySource::from_head(..)"),
            Source::Request(_) => f.write_str("KeySource::from_request(..)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(fields: &[(&'static str, &str)]) -> Parts {
        let mut request = http::Request::builder();
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    // H6, case K09
    #[test]
    fn two_header_lines_are_malformed() {
        let parts = parts(&[("idempotency-key", "a"), ("idempotency-key", "a")]);
        assert!(KeySource::default().in_head(&parts).is_err());
    }

    // H4
    #[test]
    fn several_names_must_agree() {
        let source = KeySource::headers([IDEMPOTENCY_KEY, HeaderName::from_static("x-key")]);
        let key = |fields: &[(&'static str, &str)]| {
            source.in_head(&parts(fields)).map(|found| found.map(|found| found.key.as_str().to_owned()))
        };
        assert_eq!(key(&[("x-key", "b")]).unwrap().unwrap(), "b");
        assert_eq!(key(&[("x-key", "a"), ("idempotency-key", "\"a\"")]).unwrap().unwrap(), "a");
        assert!(key(&[("x-key", "b"), ("idempotency-key", "a")]).is_err());
        assert!(key(&[]).unwrap().is_none());
    }

    // H4
    #[test]
    fn a_pointer_that_yields_nothing_is_no_key() {
        let source = KeySource::pointer("/id");
        let key = |body: &'static str| {
            source.in_request(&parts(&[]), &Bytes::from_static(body.as_bytes())).unwrap().map(|found| found.key)
        };
        assert_eq!(key(r#"{"id":"evt_1"}"#).unwrap().as_str(), "evt_1");
        assert_eq!(key(r#"{"id":7}"#).unwrap().as_str(), "7");
        for none in ["{}", "not json", r#"{"id":null}"#, r#"{"id":{}}"#, r#"{"id":1.5}"#] {
            assert!(key(none).is_none(), "{none}");
        }
    }
}
