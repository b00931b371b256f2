//! Two documents that a parser of JSON calls equal have one fingerprint, however they are spelled.

#![no_main]

use http::{HeaderMap, HeaderValue, Method};
use idempotency::fingerprint::{Fingerprint, Fingerprinter, RequestView};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn of(body: &[u8]) -> Fingerprint {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let view = RequestView { method: &Method::POST, path: "/", query: None, headers: &headers, body };
    Fingerprinter::new().fingerprint(&view)
}

/// Whether an object has a member twice, of which a parser keeps one.
fn repeats(body: &[u8], value: &Value) -> bool {
    fn members(value: &Value) -> usize {
        match value {
            Value::Object(object) => object.len() + object.values().map(members).sum::<usize>(),
            Value::Array(items) => items.iter().map(members).sum(),
            _ => 0,
        }
    }
    // Colons outside of strings are as many as members.
    let (mut colons, mut inside, mut escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b':' if !inside => colons += 1,
            _ => {}
        }
    }
    colons != members(value)
}

/// Whether an exponent may not fit into an `i128`. Such a body counts as it was written, byte for byte.
fn has_vast_exponent(body: &[u8]) -> bool {
    let exponents = body.iter().enumerate().filter(|(_, byte)| matches!(byte, b'e' | b'E'));
    exponents.map(|(at, _)| &body[at + 1..]).any(|rest| {
        let digits = rest.strip_prefix(b"-").or(rest.strip_prefix(b"+")).unwrap_or(rest);
        digits.iter().take_while(|byte| byte.is_ascii_digit()).count() > 38
    })
}

fuzz_target!(|body: &[u8]| {
    let first = of(body);
    assert_eq!(first, of(body));
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    if repeats(body, &value) || has_vast_exponent(body) {
        return;
    }
    // With other white space, other escapes, members in another order; numbers as they were written.
    assert_eq!(first, of(value.to_string().as_bytes()));
    let pretty = serde_json::to_vec_pretty(&value).expect("a value is written");
    assert_eq!(first, of(&pretty));
});
