//! Any bytes are an entity tag, a list of them, or an error; a tag is written as it was read.

#![no_main]

use http::{HeaderMap, HeaderValue, Method};
use idempotency::precondition::{EntityTag, Preconditions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|field: &[u8]| {
    if let Ok(tag) = EntityTag::parse(field) {
        let value = tag.to_header_value();
        let again = EntityTag::parse(value.as_bytes()).expect("what was written is read");
        assert!(tag.weak_eq(&again) && tag.is_weak() == again.is_weak());
    }
    let Ok(value) = HeaderValue::from_bytes(field) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(http::header::IF_MATCH, value.clone());
    headers.insert(http::header::IF_NONE_MATCH, value);
    if let Ok(preconditions) = Preconditions::parse(&Method::PUT, &headers) {
        let _ = preconditions.judge(None);
    }
});
