//! What is recorded of failures.

use std::time::Duration;

use super::Harness;
use super::support::{Owner, done, enqueued, event, failed, only, pending, queue};
use crate::db::outbox::{Acked, Attempt, Cause, Failing, Queue};
use crate::outbox::{Bucket, Outbox, Place};

async fn failing<H: Harness>(outbox: &Outbox<H::DB>) -> Vec<Failing> {
    let buckets: Vec<Bucket> = Bucket::all().collect();
    done(queue(outbox).failing(&buckets)).await
}

/// Attempts add up, and what a relay must know after a restart comes back (M34, M36).
pub async fn attempts_are_counted_and_remembered<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let id = enqueued(harness, &outbox, &event("k")).await;
    enqueued(harness, &outbox, &event("other")).await;
    let owner = Owner::of_all(&outbox, "one").await;
    let read = pending(&outbox).await;
    let pending = read.iter().find(|pending| pending.id() == id).unwrap_or(&read[0]);
    let fence = owner.fence(pending);
    assert!(failing::<H>(&outbox).await.is_empty());
    // Recorded before it is made, and taken back; then three that count, and one that does not.
    let attempt = failed(pending);
    assert_eq!(done(queue.record(fence, &Attempt { retry_in: Duration::ZERO, ..attempt })).await, Some(1));
    let at_once = failing::<H>(&outbox).await;
    assert!(at_once.len() == 1 && at_once[0].retry_in == Duration::ZERO && at_once[0].attempts == 1);
    assert_eq!(done(queue.record(fence, &Attempt { count: -1, ..attempt })).await, Some(0));
    for n in 1..=3 {
        assert_eq!(done(queue.record(fence, &attempt)).await, Some(n));
    }
    assert_eq!(done(queue.record(fence, &Attempt { count: 0, error: &"x\0".repeat(999), ..attempt })).await, Some(3));
    let found = failing::<H>(&outbox).await;
    assert_eq!(found.len(), 1);
    let found = &found[0];
    assert_eq!((found.place, found.id, found.destination.as_str()), (pending.place(), id, "kit"));
    assert_eq!((found.key.as_deref(), found.attempts, found.blocked, found.redrives), (Some("k"), 3, false, 0));
    assert!(found.retry_in > Duration::from_secs(3500) && found.retry_in <= Duration::from_secs(3600));
    let other: Vec<Bucket> = Bucket::all().filter(|bucket| *bucket != pending.bucket()).collect();
    assert!(done(queue.failing(&other)).await.is_empty());
    let listed = done(outbox.failing(10)).await;
    assert_eq!((listed.len(), listed[0].attempts, listed[0].pending.id()), (1, 3, id));
    assert!(listed[0].error.len() <= 1_000 && listed[0].failing_for < Duration::from_secs(60));
}

/// Who has lost a bucket changes nothing in it, but its acks are final (M32, M33, case B33).
pub async fn a_stale_fence_changes_nothing<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let id = enqueued(harness, &outbox, &event("k")).await;
    let old = Owner::of_all(&outbox, "one").await;
    let pending = only(&outbox).await;
    let fence = *old.fence(&pending);
    done(queue.release(&[fence])).await;
    let cause = Cause { attempts: 1, error: "refused" };
    let changes_nothing = async || {
        assert_eq!(done(queue.record(&fence, &failed(&pending))).await, None);
        assert!(!done(queue.park(&fence, pending.place(), id, &cause)).await);
        assert!(failing::<H>(&outbox).await.is_empty());
        assert_eq!(only(&outbox).await, pending);
    };
    changes_nothing().await;
    let again = done(queue.take(&old.member, u32::MAX)).await;
    assert_eq!(again.len(), 1);
    let current = again[0].fence;
    assert!(current.epoch > fence.epoch && !again[0].vanished);
    changes_nothing().await;
    done(queue.release(&[fence])).await;
    assert_eq!(done(queue.record(&current, &failed(&pending))).await, Some(1));
    done(queue.delete(&[Acked { place: pending.place(), id }])).await;
    assert!(super::support::pending(&outbox).await.is_empty());
}

/// With its event go its failures, and nothing is recorded of an event that is not there (case B32).
pub async fn an_event_that_is_gone_has_no_failures<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let id = enqueued(harness, &outbox, &event("k")).await;
    let owner = Owner::of_all(&outbox, "one").await;
    let pending = only(&outbox).await;
    let fence = owner.fence(&pending);
    done(queue.record(fence, &failed(&pending))).await;
    done(queue.delete(&[Acked { place: pending.place(), id }])).await;
    assert!(failing::<H>(&outbox).await.is_empty());
    assert_eq!(done(queue.record(fence, &failed(&pending))).await, None);
    let cause = Cause { attempts: 1, error: "refused" };
    assert!(!done(queue.park(fence, pending.place(), id, &cause)).await);
    let elsewhere = Place { seq: pending.place().seq + 1, ..pending.place() };
    assert!(!done(queue.park(fence, elsewhere, id, &cause)).await);
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.failing, stats.dead), (0, 0, 0));
}

/// A blocked event waits for an operator, who sends it off again from where it stands, with the same id (M35, case B39).
pub async fn a_blocked_event_is_redriven_in_its_place<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let id = enqueued(harness, &outbox, &event("k")).await;
    let owner = Owner::of_all(&outbox, "one").await;
    let before = only(&outbox).await;
    let fence = owner.fence(&before);
    done(queue.record(fence, &Attempt { blocked: true, ..failed(&before) })).await;
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.failing, stats.blocked), (1, 0, 1));
    assert!(done(outbox.redrive(id)).await);
    let found = failing::<H>(&outbox).await;
    assert_eq!((found[0].attempts, found[0].blocked, found[0].redrives), (0, false, 1));
    assert_eq!(found[0].retry_in, Duration::ZERO);
    let after = only(&outbox).await;
    assert_eq!((after.place(), after.id(), after.redrives()), (before.place(), id, 1));
    assert_eq!(after.delivery_id(), format!("{id}#1"));
    assert_eq!(done(queue.read(after.place())).await.as_ref(), Some(&after));
    // It counts on from nought, and takes its redrives with it when it dies.
    assert_eq!(done(queue.record(fence, &failed(&after))).await, Some(1));
    assert!(done(queue.park(fence, after.place(), id, &Cause { attempts: 1, error: "x" })).await);
    let dead = done(outbox.dead_letters(&crate::outbox::DeadLetters::all(), 10)).await;
    assert_eq!((dead.len(), dead[0].event.redrives()), (1, 1));
}

/// A failing event can be given up, and what stands behind it is the head of its key then (M35).
pub async fn a_discarded_event_lets_its_key_go_on<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let id = enqueued(harness, &outbox, &event("k").bytes("1")).await;
    let next = enqueued(harness, &outbox, &event("k").bytes("2")).await;
    let owner = Owner::of_all(&outbox, "one").await;
    let head = pending(&outbox).await.remove(0);
    assert_eq!(head.id(), id);
    // One that does not fail may be in flight: it is not for operators.
    assert!(!done(outbox.discard(id)).await && !done(outbox.redrive(id)).await);
    done(queue.record(owner.fence(&head), &Attempt { blocked: true, ..failed(&head) })).await;
    assert!(done(outbox.discard(id)).await);
    assert!(!done(outbox.discard(id)).await);
    assert_eq!(only(&outbox).await.id(), next);
    assert!(failing::<H>(&outbox).await.is_empty());
}
