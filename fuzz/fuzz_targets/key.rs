//! Any bytes are a key or an error. A quoted key that is taken is one for a parser of RFC 9651 too, with the same text.

#![no_main]

use idempotency::Key;
use libfuzzer_sys::fuzz_target;
use sfv::{BareItem, Parser};

fuzz_target!(|field: &[u8]| {
    let Ok(key) = Key::parse(field) else { return };
    assert!((1..=255).contains(&key.as_str().len()));
    assert!(Key::new(key.as_str()).is_ok(), "what was taken from a field is a key");
    if field.trim_ascii_start().first() == Some(&b'"') {
        let text = std::str::from_utf8(field).expect("a quoted key is ASCII");
        let item: sfv::Item = Parser::new(text).parse().expect("a structured field");
        assert!(matches!(&item.bare_item, BareItem::String(text) if text.as_str() == key.as_str()));
    }
});
