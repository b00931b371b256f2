//! How long a mark counts (M8).

use std::time::Duration;

use tokio::time::sleep;

use super::{CONSUMER, Harness, Work, message, processed};
use crate::inbox::Processed;

async fn purged<H: Harness>(harness: &H, inbox: &H::Inbox, limit: u32) -> u64 {
    match harness.purge(inbox, limit).await {
        Ok(purged) => purged,
        Err(error) => panic!("the purge failed: {error}"),
    }
}

/// Retention is "at least": what is older is a duplicate still, until it is purged.
pub async fn a_mark_counts_until_it_is_purged<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let told = message("old", "payload");
    assert_eq!(processed(harness, &inbox, &told, Work::new("old")).await, Processed::First(()));
    harness.expire().await;
    assert_eq!(processed(harness, &inbox, &told, Work::new("old")).await, Processed::Duplicate);
    // A purge passes over what is locked, and the transaction that found the duplicate may end a little later.
    let mut gone = purged(harness, &inbox, 10).await;
    for _ in 0..50 {
        if gone > 0 {
            break;
        }
        sleep(Duration::from_millis(100)).await;
        gone = purged(harness, &inbox, 10).await;
    }
    assert_eq!(gone, 1);
    assert_eq!(processed(harness, &inbox, &told, Work::new("old")).await, Processed::First(()));
    assert_eq!(harness.effects("old").await, 2);
}

/// Bounded, and never a mark whose retention has not ended.
pub async fn a_purge_takes_what_has_expired_and_nothing_else<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    for n in 0..5 {
        let told = processed(harness, &inbox, &message(format!("expired {n}"), "payload"), Work::new("expired")).await;
        assert_eq!(told, Processed::First(()));
    }
    harness.expire().await;
    let fresh = message("fresh", "payload");
    assert_eq!(processed(harness, &inbox, &fresh, Work::new("fresh")).await, Processed::First(()));
    assert_eq!(purged(harness, &inbox, 3).await, 3);
    assert_eq!(purged(harness, &inbox, 3).await, 2);
    assert_eq!(purged(harness, &inbox, 3).await, 0);
    assert_eq!(processed(harness, &inbox, &fresh, Work::new("fresh")).await, Processed::Duplicate);
}
