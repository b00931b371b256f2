//! That nobody waits for anybody (M38).

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};

use super::Harness;
use super::support::{Owner, commit, done, enqueued, event, failed, pending, queue, roll_back};
use crate::db::outbox::{Acked, Cause, Queue};
use crate::outbox::{DeadLetters, Event};

/// What a statement may take on a busy machine. One that waits for a lock takes seconds.
const AT_ONCE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// Does it without waiting, and tells how long it took.
async fn at_once<T, E: Debug>(what: &str, call: impl Future<Output = Result<T, E>>) -> T {
    let begun = Instant::now();
    match timeout(AT_ONCE, call).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => panic!("{what} fails: {error:?}"),
        Err(_) => panic!("{what} waits for a producer: {:?}", begun.elapsed()),
    }
}

/// While a producer's transaction is open, every statement of a relay and of operators returns at once; and while those run,
/// another producer does (M38, cases B05, B28 and B47). Where one transaction writes at a time, what only reads does.
pub async fn nobody_waits_for_a_producer<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    // Few rows: a table that is short enough to be read as a whole is where an engine is tempted to.
    let committed: Vec<Event> = (0..40).map(|n| event(&format!("k{}", n % 4)).bytes(n.to_string())).collect();
    let mut tx = harness.begin().await;
    done(outbox.enqueue_all(&mut tx, &committed)).await;
    commit(tx).await;
    enqueued(harness, &outbox, &event("due").deliver_after(SystemTime::UNIX_EPOCH)).await;
    let owner = Owner::of_all(&outbox, "one").await;
    let read = pending(&outbox).await;

    let mut open = harness.begin().await;
    for n in 0..30 {
        done(outbox.enqueue(&mut open, &event(&format!("k{}", n % 4)))).await;
    }
    done(outbox.enqueue(&mut open, &event("k").deliver_after(SystemTime::UNIX_EPOCH))).await;

    let all: Vec<_> = owner.fences.keys().copied().collect();
    assert_eq!(at_once("a poll", async { Ok::<_, sqlx::Error>(pending(&outbox).await) }).await.len(), 40);
    at_once("a look at one event", queue.read(read[0].place())).await;
    at_once("a look at what fails", queue.failing(&all)).await;
    at_once("a look at what is paused", queue.paused()).await;
    at_once("stats", queue.stats()).await;
    at_once("a list", queue.list_failing(10)).await;
    at_once("a look at dead letters", queue.dead(&DeadLetters::all(), 10)).await;
    at_once("a count", queue.count_dead(&DeadLetters::all(), 10)).await;
    if H::WRITERS {
        at_once("a beat", queue.beat(&owner.member, Duration::from_secs(60))).await;
        at_once("a take", queue.take(&owner.member, 64)).await;
        for pending in &read[..6] {
            let recorded = at_once("a record", queue.record(owner.fence(pending), &failed(pending))).await;
            assert_eq!(recorded, Some(1));
        }
        let cause = Cause { attempts: 1, error: "refused" };
        for pending in &read[..2] {
            assert!(at_once("a park", queue.park(owner.fence(pending), pending.place(), pending.id(), &cause)).await);
        }
        let acked: Vec<Acked> =
            read[2..30].iter().map(|pending| Acked { place: pending.place(), id: pending.id() }).collect();
        at_once("a delete of many", queue.delete(&acked[1..])).await;
        at_once("a delete of one", queue.delete(&acked[..1])).await;
        assert_eq!(at_once("a promotion", queue.promote(10)).await, 1);
        assert_eq!(at_once("a redrive", queue.redrive_dead(&DeadLetters::all(), 1)).await, 1);
        assert_eq!(at_once("a discard", queue.discard_dead(&DeadLetters::all(), 10)).await, 1);
        at_once("a redrive of what fails", queue.redrive_failing(read[3].id())).await;
        at_once("a discard of what fails", queue.discard_failing(read[4].id())).await;
        let pause = crate::db::outbox::Pause { destination: "kit".to_owned(), key: None };
        at_once("a pause", queue.set_paused(&pause, true)).await;
        at_once("a purge", queue.purge(Duration::ZERO, 10)).await;
        let fences: Vec<_> = owner.fences.values().copied().collect();
        at_once("a release", queue.release(&fences)).await;
        at_once("a farewell", queue.leave(&owner.member)).await;
        let mut other = harness.begin().await;
        at_once("another producer", outbox.enqueue(&mut other, &event("k0"))).await;
        commit(other).await;
        roll_back(open).await;
        assert_eq!(pending(&outbox).await.len(), 10 + 1 + 1 + 1);
        return;
    }
    commit(open).await;
}

/// How the server goes about a poll of all buckets and the deletion of many events, a line a step.
pub async fn plans<H: Harness>(harness: &H) -> [Vec<String>; 2] {
    done(queue(&harness.outbox().await).plans()).await
}
