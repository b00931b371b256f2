//! What makes two messages the same (M2).

use super::{CONSUMER, Harness, Work, message, of, processed};
use crate::inbox::Processed;

/// Case, blanks, composed and decomposed letters, what is no text at all: all different ids.
pub async fn ids_compare_byte_for_byte<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let ids: [&[u8]; 12] = [
        b"A",
        b"a",
        b"a ",
        b" a",
        b"a\t",
        b"a\0",
        b"\0a",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
        b"\xff",
        b"\xff\xfe",
        b"%61",
    ];
    for id in ids {
        let told = processed(harness, &inbox, &message(id, "payload"), Work::new("bytes")).await;
        assert_eq!(told, Processed::First(()), "{id:?} was taken for another id");
    }
    for id in ids {
        let told = processed(harness, &inbox, &message(id, "payload"), Work::new("bytes")).await;
        assert_eq!(told, Processed::Duplicate, "{id:?} was not found again");
    }
    assert_eq!(harness.effects("bytes").await, ids.len() as u64);
}

/// Parts that are equal in their first 255 bytes, and much longer ones.
pub async fn long_parts_are_not_cut<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let common = "\u{20ac}".repeat(85);
    let long = "x".repeat(100_000);
    let ids = [common.clone(), format!("{common}1"), format!("{common}2"), format!("{long}1"), format!("{long}2")];
    for expected in [Processed::First(()), Processed::Duplicate] {
        for id in &ids {
            let (as_id, as_source) = (of("long", id, "payload"), of(id, "long", "payload"));
            assert_eq!(processed(harness, &inbox, &as_id, Work::new("long")).await, expected);
            assert_eq!(processed(harness, &inbox, &as_source, Work::new("long")).await, expected);
        }
    }
}

/// One id of two senders, and parts whose seam lies elsewhere.
pub async fn sources_are_told_apart<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    for (source, id) in [("one", "1"), ("two", "1"), ("tw", "o1"), ("1", "one")] {
        let told = processed(harness, &inbox, &of(source, id, "payload"), Work::new("sources")).await;
        assert_eq!(told, Processed::First(()), "{source} {id}");
    }
    assert_eq!(harness.effects("sources").await, 4);
}

/// The consumer is part of the identity (case B25).
pub async fn two_consumers_of_one_message_both_run<H: Harness>(harness: &H) {
    for consumer in ["billing", "shipping", "Billing", &"b".repeat(300)] {
        let inbox = harness.inbox(consumer).await;
        let told = message("consumers", "payload");
        assert_eq!(processed(harness, &inbox, &told, Work::new("consumers")).await, Processed::First(()), "{consumer}");
        assert_eq!(processed(harness, &inbox, &told, Work::new("consumers")).await, Processed::Duplicate);
    }
    assert_eq!(harness.effects("consumers").await, 4);
}
