//! Any bytes are a key or an error. A quoted key that is taken is one for a parser of RFC 9651 too, with the same text.

#![no_main]

use idempotency::Key;
use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, Parser};

fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fuzz_target!(|field: &[u8]| {
    let Ok(key) = Key::parse(field) else { return };
    assert!((1..=255).contains(&key.as_str().len()));
    assert!(Key::new(key.as_str()).is_ok(), "what was taken from a field is a key");
    // RFC 9110 allows tabs around a field's value, which are no part of a structured field.
    let value = trim_blanks(field);
    if value.first() == Some(&b'"') {
        let text = std::str::from_utf8(value).expect("a quoted key is ASCII");
        let item: sfv::Item = Parser::new(text).parse().expect("a structured field");
        assert!(matches!(&item.bare_item, BareItem::String(text) if text.as_str() == key.as_str()));
    }
});
