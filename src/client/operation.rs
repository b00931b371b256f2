//! Operations that outlive their process (C4).

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Uri};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::keys;
use super::serial::{as_body, as_field, as_milliseconds, as_text};
use crate::key::{IDEMPOTENCY_KEY, Key};

/// What is kept back of the server's retention: for clocks that differ, and for the attempts themselves.
const MARGIN: Duration = Duration::from_secs(60 * 60);

/// The key of one operation, and when it was made. Make it before the first attempt, and keep it until the operation
/// has its answer. With serde: the key as text, the time in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationKey {
    #[serde(with = "as_text")]
    key: Key,
    #[serde(with = "as_milliseconds")]
    created_at: SystemTime,
}

impl OperationKey {
    /// A new UUIDv7, made now.
    #[must_use]
    pub fn new() -> Self {
        match Key::new(&Uuid::now_v7().to_string()) {
            Ok(key) => Self::from_parts(key, SystemTime::now()),
            Err(_) => unreachable!("a UUID is a key"),
        }
    }

    /// A key of your own, for an operation that has an id already.
    #[must_use]
    pub fn from_parts(key: Key, created_at: SystemTime) -> Self {
        // As it is stored, so that what is read back is equal.
        Self { key, created_at: as_milliseconds::cut(created_at) }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// When it was made, to the millisecond.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.created_at
    }

    /// Whether an attempt at `now` is still safe: see [`PendingOperation::resume`].
    ///
    /// # Errors
    /// [`TooOld`]
    pub fn check(&self, retention: Duration, now: SystemTime) -> Result<(), TooOld> {
        let limit = retention.saturating_sub(MARGIN);
        let is_safe = match now.duration_since(self.created_at) {
            Ok(age) => age < limit,
            // Made in the future: a clock was set back, by how much nobody knows.
            Err(ahead) => ahead.duration() < MARGIN && !limit.is_zero(),
        };
        if is_safe { Ok(()) } else { Err(TooOld { created_at: self.created_at }) }
    }
}

impl Default for OperationKey {
    fn default() -> Self {
        Self::new()
    }
}

/// One operation, whole: what every attempt sends, byte for byte.
///
/// Store it before the first attempt, and remove it when the operation has its final answer. After a restart send what is
/// stored: a body that is built anew differs in a time or an order of members, and gets 422; a new key runs twice. It
/// holds no credentials; add them to the request.
///
/// With serde: `method`, `uri` and `content_type` as text, `body` as `{"text": …}` where it is UTF-8, else `{"hex": …}`.
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderValue, Method, Uri};
/// use idempotency::client::PendingOperation;
///
/// let uri = Uri::from_static("https://payments.example/payments");
/// let json = HeaderValue::from_static("application/json");
/// let pending = PendingOperation::new(Method::POST, uri, Some(json), r#"{"amount": 1}"#);
/// let stored = serde_json::to_string(&pending)?;
///
/// // After a restart.
/// let pending: PendingOperation = serde_json::from_str(&stored)?;
/// let request = pending.resume(Duration::from_secs(24 * 60 * 60))?;
/// assert_eq!(request.headers()["idempotency-key"], pending.operation().key().as_str());
/// assert_eq!(request.body(), r#"{"amount": 1}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOperation {
    #[serde(flatten)]
    operation: OperationKey,
    #[serde(with = "as_text")]
    method: Method,
    #[serde(with = "as_text")]
    uri: Uri,
    #[serde(with = "as_field")]
    content_type: Option<HeaderValue>,
    #[serde(with = "as_body")]
    body: Bytes,
}

impl PendingOperation {
    /// A new operation under a new key.
    #[must_use]
    pub fn new(method: Method, uri: Uri, content_type: Option<HeaderValue>, body: impl Into<Bytes>) -> Self {
        Self::under(OperationKey::new(), method, uri, content_type, body)
    }

    /// A new operation under a key at hand.
    #[must_use]
    pub fn under(
        operation: OperationKey,
        method: Method,
        uri: Uri,
        content_type: Option<HeaderValue>,
        body: impl Into<Bytes>,
    ) -> Self {
        Self { operation, method, uri, content_type, body: body.into() }
    }

    /// Its key and age.
    #[must_use]
    pub fn operation(&self) -> &OperationKey {
        &self.operation
    }

    /// Its method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The type of its body.
    #[must_use]
    pub fn content_type(&self) -> Option<&HeaderValue> {
        self.content_type.as_ref()
    }

    /// Where it goes.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What it sends.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The request of the first attempt, with key, content type and body; the same every time.
    #[must_use]
    pub fn request(&self) -> Request<Bytes> {
        let mut request = Request::new(self.body.clone());
        request.method_mut().clone_from(&self.method);
        request.uri_mut().clone_from(&self.uri);
        request.headers_mut().insert(IDEMPOTENCY_KEY, keys::field(&self.operation.key));
        if let Some(content_type) = &self.content_type {
            request.headers_mut().insert(CONTENT_TYPE, content_type.clone());
        }
        request
    }

    /// The request of an attempt after a restart. `retention` is how long the server keeps the keys (24 hours unless it
    /// says otherwise).
    ///
    /// # Errors
    /// [`TooOld`] where the operation is older than that, less an hour: the server may have forgotten the key, and a
    /// repetition would be a second operation. A person has to find out whether the first one was done.
    pub fn resume(&self, retention: Duration) -> Result<Request<Bytes>, TooOld> {
        self.operation.check(retention, SystemTime::now())?;
        Ok(self.request())
    }
}

impl fmt::Debug for PendingOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URI, whose query may hold what nobody should log, and not the body.
        f.debug_struct("PendingOperation").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// The operation is too old to be tried again without a person's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operation is about as old as the server's memory of its key; find out first whether it was done")]
pub struct TooOld {
    created_at: SystemTime,
}

impl TooOld {
    /// When the operation was made.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.created_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn pending(body: &'static [u8]) -> PendingOperation {
        let content_type = Some(HeaderValue::from_static("application/json"));
        PendingOperation::new(Method::POST, Uri::from_static("http://a.example/p?q=%20"), content_type, body)
    }

    // C4
    #[test]
    fn what_is_stored_reads_back_byte_for_byte() {
        for body in [&b""[..], b"{\"a\": 1}\n", b"\x00\xff\xc3", "\u{fffd}\u{1F600}".as_bytes()] {
            let pending = pending(body);
            let read: PendingOperation = serde_json::from_str(&serde_json::to_string(&pending).unwrap()).unwrap();
            assert_eq!(read, pending);
            assert_eq!(read.request().body(), body);
            assert_eq!(read.request().headers(), pending.request().headers());
        }
        let text = serde_json::to_value(pending(b"x")).unwrap();
        assert_eq!(text["body"], serde_json::json!({"text": "x"}));
        assert_eq!(text["method"], "POST");
        assert!(text["created_at"].is_u64());
        for damaged in [r#"{"hex": "0"}"#, r#"{"hex": "+1"}"#, r#"{"other": ""}"#] {
            let mut value = text.clone();
            value["body"] = serde_json::from_str(damaged).unwrap();
            assert!(serde_json::from_value::<PendingOperation>(value).is_err(), "{damaged}");
        }
        let key = OperationKey::from_parts(Key::new("a, \"b\"").unwrap(), SystemTime::now());
        let read: OperationKey = serde_json::from_str(&serde_json::to_string(&key).unwrap()).unwrap();
        assert_eq!(read, key);
    }

    // C4
    #[test]
    fn what_the_server_may_have_forgotten_is_not_resumed() {
        let now = SystemTime::now();
        let aged = |age| OperationKey::from_parts(Key::new("k").unwrap(), now - age);
        assert!(aged(Duration::ZERO).check(24 * HOUR, now).is_ok());
        assert!(aged(22 * HOUR).check(24 * HOUR, now).is_ok());
        assert!(aged(23 * HOUR).check(24 * HOUR, now).is_err());
        assert!(aged(Duration::ZERO).check(HOUR, now).is_err());
        let ahead = |by| OperationKey::from_parts(Key::new("k").unwrap(), now + by);
        assert!(ahead(HOUR / 2).check(24 * HOUR, now).is_ok());
        assert!(ahead(2 * HOUR).check(24 * HOUR, now).is_err());
        assert!(pending(b"").resume(24 * HOUR).is_ok());
        assert!(pending(b"").resume(HOUR / 2).is_err());
    }

    // H9
    #[test]
    fn debug_shows_neither_key_nor_body() {
        let pending = pending(b"secret");
        let (shown, key) = (format!("{pending:?}"), pending.operation().key().as_str());
        assert!(!shown.contains("secret") && !shown.contains("a.example") && !shown.contains(key), "{shown}");
    }
}
