//! What holds on every engine.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use idempotency::purge::Purger;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::lab::{Lab, Locked};

const SOON: Duration = Duration::from_secs(60);

// S9, S31; cases O01, O02: what has expired is gone, what lives or has its retention left is there.
async fn expired_rows_alone_are_deleted<L: Lab>() {
    let lab = L::new(4).await;
    lab.fill(0..700, 1.0).await;
    lab.fill(700..750, -3600.0).await;
    let purged = timeout(SOON, lab.purger().await.purge_once()).await.unwrap().unwrap();
    assert_eq!((purged.rows, purged.more), (3_500, false));
    assert_eq!(lab.rows().await, [50; 5]);
}

// S31, case B26: three purgers at once never deadlock, and between them nothing is left.
async fn three_purgers_share_the_work<L: Lab>() {
    let lab = L::new(8).await;
    lab.fill(0..3_000, 1.0).await;
    lab.fill(3_000..3_010, -3600.0).await;
    let (mut stops, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (stop, stopped) = oneshot::channel::<()>();
        let purger = lab.purger().await.interval(Duration::from_millis(100));
        tasks.push(tokio::spawn(purger.run(async { drop(stopped.await) })));
        stops.push(stop);
    }
    let begun = Instant::now();
    while lab.rows().await != [10; 5] {
        assert!(begun.elapsed() < SOON, "{:?}", lab.rows().await);
        sleep(Duration::from_millis(50)).await;
    }
    drop(stops);
    let mut rows = 0;
    for task in tasks {
        rows += timeout(SOON, task).await.expect("a purger does not stop").unwrap().rows;
    }
    assert_eq!(rows, 15_000, "each row is deleted once, and nothing failed after it had been");
    assert_eq!(lab.locks().await, 0);
}

// S31: while somebody has the lock of the purge, another one deletes nothing and waits for nothing.
async fn a_purger_steps_back_while_another_one_works<L: Locked>() {
    let lab = L::new(8).await;
    lab.fill(0..10, 1.0).await;
    let purger = lab.purger().await;
    let working = lab.hold_lock().await;
    let begun = Instant::now();
    assert_eq!(purger.purge_once().await.unwrap().rows, 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "it waited");
    assert_eq!(lab.rows().await, [10; 5]);
    drop(working);
    let begun = Instant::now();
    while lab.rows().await != [0; 5] {
        assert!(begun.elapsed() < SOON, "{:?}", lab.rows().await);
        purger.purge_once().await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
}

// S31: a purger that meets another one at work, maybe on other tables, asks again before it rests.
async fn a_purger_that_meets_another_one_asks_again<L: Locked>() {
    let lab = L::new(8).await;
    lab.fill(0..10, 1.0).await;
    let purger = lab.purger().await;
    let working = lab.hold_lock().await;
    let pass = tokio::spawn(async move { purger.purge_once().await.unwrap() });
    sleep(Duration::from_millis(60)).await;
    drop(working);
    assert_eq!(timeout(SOON, pass).await.unwrap().unwrap().rows, 50);
    assert_eq!(lab.rows().await, [0; 5]);
}

/// An event with a failure on record, and so many failures of events that are gone.
async fn leave_failures<L: Lab>(lab: &L, gone: u32) {
    let (now, p, no) = (L::at(0.0), L::bytes("p"), L::NO);
    let id = |n: u32| format!("'00000000-0000-4000-8000-{n:012x}'");
    lab.run(format!(
        "INSERT INTO idempotency_outbox (bucket,id,destination,aggregatetype,aggregateid,type,source,payload,enqueued_at,redrives) \
         VALUES (1,{},'d','t','k','e','/',{p},{now},0)",
        id(0)
    ))
    .await;
    let failing = "INSERT INTO idempotency_outbox_failing \
        (bucket,seq,id,destination,aggregateid,attempts,blocked,failing_since,retry_at,redrives,error)";
    lab.run(format!(
        "{failing} SELECT bucket,seq,id,destination,aggregateid,1,{no},{now},{now},0,'no' FROM idempotency_outbox"
    ))
    .await;
    for n in 1..=gone {
        lab.run(format!("{failing} VALUES (2,{n},{},'d','k',1,{no},{now},{now},0,'no')", id(n))).await;
    }
}

const FAILING: &str = "SELECT count(*) FROM idempotency_outbox_failing";

// S9, S31: what is left of events that are gone is deleted as everything else is, so many rows a batch; a failure of an event
// that is there stays.
async fn what_is_left_of_events_is_deleted_in_batches<L: Lab>() {
    let lab = L::new(4).await;
    leave_failures(&lab, 25).await;
    let purged = lab.purger().await.batch(10).purge_once().await.unwrap();
    assert_eq!((purged.rows, purged.more), (25, false));
    assert_eq!(lab.count(FAILING.into()).await, 1);
}

// S31: under the lock of the purge, as everything else is.
async fn what_is_left_of_events_is_left_while_another_one_works<L: Locked>() {
    let lab = L::new(8).await;
    leave_failures(&lab, 3).await;
    let purger = lab.purger().await;
    let working = lab.hold_lock().await;
    assert_eq!(purger.purge_once().await.unwrap().rows, 0);
    assert_eq!(lab.count(FAILING.into()).await, 4);
    drop(working);
}

// S31: expired rows never outlive two intervals.
async fn nothing_expired_outlives_two_intervals<L: Lab>() {
    const INTERVAL: Duration = Duration::from_secs(2);
    let lab = L::new(4).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(lab.purger().await.interval(INTERVAL).run(async { drop(stopped.await) }));
    // Just missed, just hit, in between.
    for n in 0..8_u32 {
        lab.fill(n * 10..n * 10 + 10, -0.2).await;
        let expired = Instant::now() + Duration::from_millis(200);
        loop {
            if lab.rows().await == [0; 5] {
                break;
            }
            assert!(Instant::now() < expired + 2 * INTERVAL, "{:?}", lab.rows().await);
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_millis(u64::from(n) * 70)).await;
    }
    drop(stop);
    assert_eq!(timeout(SOON, task).await.unwrap().unwrap().rows, 400);
}

/// Polls a future so many times, at that distance, then drops it. `None`: it was not ready.
async fn polled<T>(times: usize, apart: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..times {
        let ready = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = ready {
            return Some(done);
        }
        // Lets what it waits for happen, so that the next poll finds something new. A timer is too coarse for it.
        let begun = Instant::now();
        while begun.elapsed() < apart {
            yield_now().await;
        }
    }
    None
}

// S31, Q2: dropped at any poll, nothing is left locked, and the next purge does everything.
async fn a_purge_dropped_at_any_poll_leaves_nothing_locked<L: Lab>() {
    let lab = L::new(3).await;
    let purger = lab.purger().await;
    // A machine at work is slow in all: the polls share out what a purge takes here and now.
    let mut took = SOON;
    for _ in 0..3 {
        lab.fill(0..3, 1.0).await;
        let begun = Instant::now();
        purger.purge_once().await.unwrap();
        took = took.min(begun.elapsed());
    }
    for times in 0..400 {
        lab.fill(0..3, 1.0).await;
        let done = polled(times, took / 40, purger.purge_once()).await;
        let begun = Instant::now();
        // What was cut off is rolled back, or goes on to its end, in the background: for a moment others may be told that it is
        // busy.
        loop {
            timeout(SOON, purger.purge_once()).await.expect("somebody has a lock").unwrap();
            if lab.rows().await == [0; 5] && lab.locks().await == 0 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "after {times} polls: {:?}", lab.rows().await);
            sleep(Duration::from_millis(5)).await;
        }
        if done.is_some() {
            assert!(times > 5, "it was cut nowhere");
            return;
        }
    }
    panic!("it never ends");
}

// S31: what fails is survived, and the database is purged when it can be again.
async fn a_table_that_is_missing_for_a_while_is_survived<L: Lab>() {
    let lab = L::new(4).await;
    lab.fill(0..50, 1.0).await;
    lab.run("ALTER TABLE idempotency_keys RENAME TO elsewhere".into()).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let purger: Purger = lab.purger().await.interval(Duration::from_millis(100));
    assert!(purger.purge_once().await.is_err());
    assert_eq!(lab.count("SELECT count(*) FROM idempotency_leases".into()).await, 0, "the others are purged");
    let task = tokio::spawn(purger.run(async { drop(stopped.await) }));
    sleep(Duration::from_millis(300)).await;
    lab.run("ALTER TABLE elsewhere RENAME TO idempotency_keys".into()).await;
    let begun = Instant::now();
    while lab.rows().await != [0; 5] {
        assert!(begun.elapsed() < SOON);
        sleep(Duration::from_millis(20)).await;
    }
    drop(stop);
    timeout(SOON, task).await.unwrap().unwrap();
}

macro_rules! on {
    ($($engine:ident: $lab:ty { $($name:ident)* })*) => {
        $(mod $engine {
            use crate::lab::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<$lab>().await;
                }
            )*
        })*
    };
}

on! {
    on_postgres: PostgresLab {
        expired_rows_alone_are_deleted
        three_purgers_share_the_work
        nothing_expired_outlives_two_intervals
        a_purge_dropped_at_any_poll_leaves_nothing_locked
        a_table_that_is_missing_for_a_while_is_survived
        a_purger_steps_back_while_another_one_works
        a_purger_that_meets_another_one_asks_again
        what_is_left_of_events_is_deleted_in_batches
        what_is_left_of_events_is_left_while_another_one_works
    }
    on_pgbouncer: PostgresLab<true> {
        expired_rows_alone_are_deleted
        three_purgers_share_the_work
        a_purge_dropped_at_any_poll_leaves_nothing_locked
        a_purger_steps_back_while_another_one_works
        a_purger_that_meets_another_one_asks_again
        what_is_left_of_events_is_deleted_in_batches
    }
    on_mariadb: MariaDbLab {
        expired_rows_alone_are_deleted
        three_purgers_share_the_work
        nothing_expired_outlives_two_intervals
        a_purge_dropped_at_any_poll_leaves_nothing_locked
        a_table_that_is_missing_for_a_while_is_survived
        a_purger_steps_back_while_another_one_works
        a_purger_that_meets_another_one_asks_again
        what_is_left_of_events_is_deleted_in_batches
        what_is_left_of_events_is_left_while_another_one_works
    }
    on_sqlite: SqliteLab {
        expired_rows_alone_are_deleted
        three_purgers_share_the_work
        nothing_expired_outlives_two_intervals
        a_purge_dropped_at_any_poll_leaves_nothing_locked
        a_table_that_is_missing_for_a_while_is_survived
        what_is_left_of_events_is_deleted_in_batches
    }
}
