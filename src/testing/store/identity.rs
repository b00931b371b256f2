//! What makes two keys the same key.

use super::Harness;
use super::support::{answer, asked, completed, fingerprint, lookup, replayed};
use crate::lookup::LookupKey;

async fn are_independent<H: Harness>(harness: &H, lookups: &[LookupKey]) {
    let store = harness.store().await;
    for (number, lookup) in lookups.iter().enumerate() {
        completed(&store, &asked(lookup.clone(), fingerprint(1, 1)), answer(&number.to_string())).await;
    }
    for (number, lookup) in lookups.iter().enumerate() {
        let record = replayed(&store, &asked(lookup.clone(), fingerprint(1, 1))).await;
        assert_eq!(record.answer, answer(&number.to_string()), "{number} is not its own");
    }
}

/// H8, case D02.
pub async fn keys_compare_byte_for_byte<H: Harness>(harness: &H) {
    let keys = ["ABC", "abc", "abc ", " abc", "aBc", "abc\\", "abc%", "abc_", "a'c", "a\"c", "a;c", "0", "00", "0.0"];
    are_independent(harness, &keys.map(|key| lookup("bytes", key, "e"))).await;
}

/// Case, blanks, composed and decomposed characters, and what a pattern or a quote could mean.
pub async fn scopes_compare_byte_for_byte<H: Harness>(harness: &H) {
    let scopes = [
        "user",
        "User",
        "user ",
        "\u{e9}",
        "e\u{301}",
        "ﬁ",
        "fi",
        "\u{1F600}",
        "%",
        "_",
        "'",
        "\\",
        "a\nb",
        "a\0b",
        "a\0",
    ];
    are_independent(harness, &scopes.map(|scope| lookup(scope, "key", "e"))).await;
}

/// H11, H12; cases K10, F06.
pub async fn scope_key_and_endpoint_are_told_apart<H: Harness>(harness: &H) {
    let lookups = [
        lookup("a", "b", "c"),
        lookup("ab", "c", "c"),
        lookup("a", "bc", "c"),
        lookup("a", "b", "cc"),
        lookup("b", "a", "c"),
        lookup("a", "c", "b"),
        lookup("a", "b", ""),
        lookup("", "b", "c"),
    ];
    are_independent(harness, &lookups).await;
}

/// H7, H12, S4; cases K01, K02, K03, alike in all stores: keys of 255 bytes, scopes and endpoints of any length.
pub async fn the_longest_parts_work<H: Harness>(harness: &H) {
    let key = "k".repeat(255);
    let long = "s".repeat(10_000);
    let lookups = [
        lookup(&long, &key, &long),
        lookup(&format!("{long}x"), &key, &long),
        lookup(&long, &key, &format!("{long}x")),
        lookup(&long, &key[1..], &long),
        lookup(&"\u{1F600}".repeat(32), &key, &"e".repeat(128)),
    ];
    are_independent(harness, &lookups).await;
}
