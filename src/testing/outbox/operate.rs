//! What operators see and set.

use std::time::Duration;

use super::Harness;
use super::support::{Owner, commit, done, enqueued, event, failed, pending, queue};
use crate::db::outbox::{Attempt, Queue};
use crate::outbox::{Event, Stats};

/// A destination and single keys of it are paused and resumed apart, for everybody (M40).
pub async fn pauses_are_kept<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    for _ in 0..2 {
        done(outbox.pause("a")).await;
        done(outbox.pause_key("a", "")).await;
        done(outbox.pause_key("a", "k")).await;
    }
    let paused = async || {
        let mut paused = done(harness.outbox().await.paused()).await;
        paused.sort_unstable();
        paused
    };
    let key = |key: &str| ("a".to_owned(), Some(key.to_owned()));
    assert_eq!(paused().await, [("a".to_owned(), None), key(""), key("k")]);
    done(outbox.resume("a")).await;
    assert_eq!(paused().await, [key(""), key("k")]);
    done(outbox.resume_key("a", "")).await;
    done(outbox.resume_key("b", "k")).await;
    assert_eq!(paused().await, [key("k")]);
}

/// Counts are exact up to their bound, and the oldest event has an age (M36).
pub async fn an_outbox_says_how_it_stands<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    assert_eq!(done(outbox.stats()).await, Stats::default());
    enqueued(harness, &outbox, &event("first")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let batch: Vec<Event> = (0..1_000).map(|n| event(&format!("k{n}"))).collect();
    let mut tx = harness.begin().await;
    done(outbox.enqueue_all(&mut tx, &batch)).await;
    commit(tx).await;
    let owner = Owner::of_all(&outbox, "one").await;
    let read = pending(&outbox).await;
    for (n, pending) in read.iter().take(5).enumerate() {
        let attempt = Attempt { blocked: n < 2, ..failed(pending) };
        done(queue(&outbox).record(owner.fence(pending), &attempt)).await;
    }
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.failing, stats.blocked), (1_001, 3, 2));
    let age = stats.oldest_age.unwrap_or_default();
    assert!(age >= Duration::from_millis(20) && age < Duration::from_secs(60), "{age:?}");
    let listed = done(outbox.failing(4)).await;
    assert_eq!(listed.iter().map(|failing| failing.blocked).collect::<Vec<_>>(), [true, true, false, false]);
    for _ in 0..10 {
        let mut tx = harness.begin().await;
        done(outbox.enqueue_all(&mut tx, &batch)).await;
        commit(tx).await;
    }
    assert_eq!(done(outbox.stats()).await.pending, Stats::MOST);
}
