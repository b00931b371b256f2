//! The requests that a service is probed with.

use bytes::Bytes;
use serde_json::{Number, Value};

/// Bodies of requests.
#[derive(Debug)]
pub(super) struct Samples {
    /// One that the service accepts.
    pub(super) body: Bytes,
    /// Another one.
    pub(super) other: Option<Bytes>,
    /// One that takes its time.
    pub(super) slow: Option<Bytes>,
}

impl Samples {
    pub(super) fn new(body: Bytes) -> Self {
        let other = changed(&body);
        Self { body, other, slow: None }
    }

    pub(super) fn is_json(&self) -> bool {
        serde_json::from_slice::<Value>(&self.body).is_ok()
    }

    /// The slow one with another meaning.
    pub(super) fn other_slow(&self) -> Option<Bytes> {
        self.slow.as_deref().and_then(changed)
    }
}

/// The same document with its first whole number one larger. `None` where there is no such number.
fn changed(body: &[u8]) -> Option<Bytes> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    increment(&mut document).then(|| Bytes::from(document.to_string()))
}

fn increment(value: &mut Value) -> bool {
    match value {
        Value::Number(number) => match number.as_i64().and_then(|number| number.checked_add(1)) {
            Some(more) => {
                *number = Number::from(more);
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().any(increment),
        Value::Object(members) => members.values_mut().any(increment),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_body_differs_in_one_number() {
        let samples = Samples::new(Bytes::from_static(br#"{"card":"ok","amounts":[null,12,13]}"#));
        let other: Value = serde_json::from_slice(samples.other.as_deref().unwrap()).unwrap();
        assert_eq!(other, serde_json::json!({"card": "ok", "amounts": [null, 13, 13]}));
        assert!(Samples::new(Bytes::from_static(b"{\"card\":\"ok\"}")).other.is_none());
        assert!(Samples::new(Bytes::from_static(b"12 EUR")).other.is_none());
    }
}
