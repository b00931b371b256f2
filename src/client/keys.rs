//! Where the key of a new operation comes from.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use http::request::Parts;
use uuid::Uuid;

use crate::key::Key;

/// Makes the key of an operation whose request has none.
#[derive(Clone, Default)]
pub struct KeyMaker(Maker);

type OfRequest = dyn Fn(&Parts) -> Option<Key> + Send + Sync;

#[derive(Clone, Default)]
enum Maker {
    #[default]
    V7,
    V4,
    Request(Arc<OfRequest>),
}

impl KeyMaker {
    /// UUIDv7 (RFC 9562 section 5.7), the default: random, and sorted by time in the server's index. It tells the server
    /// when the operation was begun.
    #[must_use]
    pub fn v7() -> Self {
        Self(Maker::V7)
    }

    /// UUIDv4: random only.
    #[must_use]
    pub fn v4() -> Self {
        Self(Maker::V4)
    }

    /// A function of the request's head, for operations that have an id of their own. `None` leaves the request without a
    /// key, and so without retries. Not a function of the attempt: all attempts at an operation need one key.
    pub fn from_fn(f: impl Fn(&Parts) -> Option<Key> + Send + Sync + 'static) -> Self {
        Self(Maker::Request(Arc::new(f)))
    }

    /// The field value for this request.
    pub(super) fn field(&self, parts: &Parts) -> Option<HeaderValue> {
        match &self.0 {
            Maker::V7 => Some(Uuid::now_v7()),
            Maker::V4 => Some(Uuid::new_v4()),
            Maker::Request(f) => return f(parts).map(|key| field(&key)),
        }
        .and_then(|uuid| HeaderValue::try_from(uuid.to_string()).ok())
    }
}

impl fmt::Debug for KeyMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Maker::V7 => "KeyMaker(v7)",
            Maker::V4 => "KeyMaker(v4)",
            Maker::Request(_) => "KeyMaker(..)",
        })
    }
}

/// A key as a field value: bare where it reads back so, which servers that know no structured fields need; else quoted
/// (RFC 9651 section 3.3.3).
pub(super) fn field(key: &Key) -> HeaderValue {
    let text = key.as_str();
    let value = if Key::parse(text.as_bytes()).is_ok_and(|read| read == *key) {
        HeaderValue::from_str(text)
    } else {
        HeaderValue::try_from(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
    };
    match value {
        Ok(value) => value,
        Err(_) => unreachable!("a key is printable ASCII"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made(maker: &KeyMaker) -> Uuid {
        let parts = http::Request::new(()).into_parts().0;
        maker.field(&parts).unwrap().to_str().unwrap().parse().unwrap()
    }

    // C1
    #[test]
    fn keys_are_version_7_unless_said_otherwise() {
        assert_eq!(made(&KeyMaker::default()).get_version_num(), 7);
        assert_eq!(made(&KeyMaker::v4()).get_version_num(), 4);
        assert_ne!(made(&KeyMaker::v7()), made(&KeyMaker::v7()));
    }

    proptest! {
        // H5
        #[test]
        fn every_key_reads_back_from_its_field(text in "[ -~]{1,40}") {
            if let Ok(key) = Key::new(&text) {
                prop_assert_eq!(Key::parse(field(&key).as_bytes()), Ok(key));
            }
        }
    }
}
