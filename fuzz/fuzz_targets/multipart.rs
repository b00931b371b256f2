//! Any form has a fingerprint, and its boundary is no part of it.

#![no_main]

use http::{HeaderMap, HeaderValue, Method};
use idempotency::fingerprint::{Fingerprint, Fingerprinter, RequestView};
use libfuzzer_sys::fuzz_target;

fn of(boundary: &str, body: &[u8]) -> Fingerprint {
    let mut headers = HeaderMap::new();
    let kind = format!("multipart/form-data; boundary={boundary}");
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_str(&kind).expect("a content type"));
    let view = RequestView { method: &Method::POST, path: "/", query: None, headers: &headers, body };
    Fingerprinter::new().fingerprint(&view)
}

/// The parts as a form with this boundary.
fn form(boundary: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        body.extend_from_slice(format!("--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n").as_bytes());
        body.extend_from_slice(part);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

fuzz_target!(|data: &[u8]| {
    // Whatever it is, it is read without a fault.
    let _ = of("b", data);
    let parts: Vec<&[u8]> = data.split(|byte| *byte == 0xff).collect();
    let holds = |boundary: &str| {
        let delimiter = format!("--{boundary}");
        parts.iter().any(|part| part.windows(delimiter.len()).any(|window| window == delimiter.as_bytes()))
    };
    let (one, two) = ("frontier-one", "frontier-number-two");
    if !holds(one) && !holds(two) {
        assert_eq!(of(one, &form(one, &parts)), of(two, &form(two, &parts)));
    }
});
