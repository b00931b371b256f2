//! In which order events are found.

use super::Harness;
use super::support::{commit, done, event, payloads, pending, queue, roll_back};
use crate::db::outbox::{From, Queue};
use crate::outbox::{Event, Outbox};

/// An event that is enqueued after another one of its key has been committed stands behind it (M31).
pub async fn writers_that_serialise_get_growing_numbers<H: Harness>(harness: &H) {
    let outboxes: [Outbox<H::DB>; 2] = [harness.outbox().await, harness.outbox().await];
    for n in 0..40 {
        // Each transaction on whatever connection the pool gives.
        let mut tx = harness.begin().await;
        done(outboxes[n % 2].enqueue(&mut tx, &event("k").bytes(n.to_string()))).await;
        commit(tx).await;
    }
    let read = pending(&outboxes[0]).await;
    assert_eq!(payloads(&read), (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    let numbers: Vec<i64> = read.iter().map(|pending| pending.place().seq).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

/// An event whose transaction commits last is found though it has the smaller number: a position is no truth (M30, cases B01
/// and B03).
pub async fn a_late_committer_is_found_behind_those_that_came_first<H: Harness>(harness: &H) {
    if !H::WRITERS {
        return;
    }
    let outbox = harness.outbox().await;
    let mut slow = harness.begin().await;
    done(outbox.enqueue(&mut slow, &event("k").bytes("slow"))).await;
    let mut fast = harness.begin().await;
    done(outbox.enqueue(&mut fast, &event("k").bytes("fast"))).await;
    commit(fast).await;
    let first = pending(&outbox).await;
    assert_eq!(payloads(&first), ["fast"]);
    commit(slow).await;
    let last = first[0].place();
    let beyond = From { bucket: last.bucket, after: last.seq, most: 10 };
    assert!(done(queue(&outbox).poll(&[beyond])).await.is_empty());
    assert_eq!(payloads(&pending(&outbox).await), ["slow", "fast"]);
}

/// Numbers of transactions that were rolled back are missing, and nothing waits for them (case B06).
pub async fn holes_are_normal<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let mut kept = Vec::new();
    for n in 0..30 {
        let mut tx = harness.begin().await;
        let numbered: Event = event("k").bytes(n.to_string());
        done(outbox.enqueue(&mut tx, &numbered)).await;
        if n % 3 == 0 {
            roll_back(tx).await;
        } else {
            commit(tx).await;
            kept.push(n.to_string());
        }
    }
    assert_eq!(payloads(&pending(&outbox).await), kept);
}
