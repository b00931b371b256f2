//! How passes follow each other, on tables that are made up, in time that is made up too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Batch;
use super::purger::Purger;
use super::table::Table;
use crate::error::{Error, ErrorKind};
use crate::store::Boxed;

const INTERVAL: Duration = Duration::from_secs(10);
const BATCH: Duration = Duration::from_millis(20);

/// Answers each batch by a function of the number of calls before and the time since the first, after [`BATCH`].
struct Made<F> {
    answer: F,
    calls: AtomicU64,
    began: Instant,
    seen: Mutex<Vec<Instant>>,
}

impl<F: Fn(u64, Duration, u32) -> Result<Batch, Error> + Send + Sync + 'static> Made<F> {
    fn new(answer: F) -> Arc<Self> {
        Arc::new(Self { answer, calls: AtomicU64::new(0), began: Instant::now(), seen: Mutex::default() })
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl<F: Fn(u64, Duration, u32) -> Result<Batch, Error> + Send + Sync> Table for Made<F> {
    fn batch(&self, limit: u32) -> Boxed<'_, Batch> {
        Box::pin(async move {
            self.seen.lock().unwrap().push(Instant::now());
            sleep(BATCH).await;
            (self.answer)(self.calls.fetch_add(1, Ordering::Relaxed), self.began.elapsed(), limit)
        })
    }
}

const fn rows(purged: u64) -> Result<Batch, Error> {
    Ok(Batch::Done { purged, overdue: Duration::ZERO })
}

fn full(limit: u32) -> Result<Batch, Error> {
    rows(limit.into())
}

fn down() -> Result<Batch, Error> {
    Err(ErrorKind::Unavailable.into())
}

// S31: a table that fails takes nothing from one that catches up.
#[tokio::test(start_paused = true)]
async fn one_that_fails_does_not_slow_another_one_down() {
    let (failing, busy) = (Made::new(|_, _, _| down()), Made::new(|_, _, limit| full(limit)));
    let purger = Purger::new().interval(INTERVAL);
    let purger = purger.table("failing", Arc::clone(&failing) as _).table("busy", Arc::clone(&busy) as _);
    let begun = Instant::now();
    let done = purger.run(sleep_until(begun + 10 * INTERVAL)).await;
    // A batch and a rest as long, all the time.
    let most = (10 * INTERVAL).as_nanos() / (2 * BATCH).as_nanos();
    assert!(u128::from(busy.calls()) > most * 9 / 10, "{} of {most}", busy.calls());
    assert!((9..30).contains(&failing.calls()), "the one that fails is left alone: {}", failing.calls());
    assert!(done.more);
}

// S31: a table is looked at once an interval, also where another one takes nearly all of it: then nothing expired outlives two.
#[tokio::test(start_paused = true)]
async fn one_that_takes_long_does_not_make_another_one_wait() {
    let slow = Made::new(|_, since, limit| {
        let into = since.as_secs_f64() % 10.0;
        if into < 9.0 { full(limit) } else { rows(0) }
    });
    let quick = Made::new(|_, _, _| rows(0));
    let purger = Purger::new().interval(INTERVAL);
    let purger = purger.table("slow", Arc::clone(&slow) as _).table("quick", Arc::clone(&quick) as _);
    purger.run(sleep(20 * INTERVAL)).await;
    let seen = quick.seen.lock().unwrap();
    let longest = seen.windows(2).map(|two| two[1] - two[0]).max().unwrap();
    assert!(longest <= INTERVAL + 4 * BATCH, "{longest:?}");
    assert!(seen.len() >= 19 && seen.len() < 60, "{}", seen.len());
}

// S31: it stops after the batch under way, not after the rest that follows.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_no_rest() {
    struct Long;
    impl Table for Long {
        fn batch(&self, limit: u32) -> Boxed<'_, Batch> {
            Box::pin(async move {
                sleep(Duration::from_secs(8)).await;
                full(limit)
            })
        }
    }
    let begun = Instant::now();
    let done = Purger::new().table("long", Arc::new(Long)).run(sleep(Duration::from_secs(9))).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(9), "it rests from the eighth second to the sixteenth");
    assert_eq!(done.rows, 100);
    let begun = Instant::now();
    Purger::new().table("long", Arc::new(Long)).run(sleep(Duration::from_secs(1))).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(8), "the batch under way is finished");
}

// S31: another purger has the lock half of the time while it catches up, maybe for other tables: who meets it asks again.
#[tokio::test(start_paused = true)]
async fn who_meets_another_one_asks_again_for_a_while() {
    let (one, other) = (
        Made::new(|call, _, _| if call < 3 { Ok(Batch::Busy) } else { rows(5) }),
        Made::new(|_, _, _| Ok(Batch::Busy)),
    );
    let purger = || Purger::new().interval(INTERVAL);
    let begun = Instant::now();
    assert_eq!(purger().table("keys", Arc::clone(&one) as _).purge_once().await.unwrap().rows, 5);
    let done = purger().table("keys", Arc::clone(&other) as _).purge_once().await.unwrap();
    assert_eq!((done.rows, done.more), (0, false));
    assert_eq!(other.calls(), 6);
    assert!(begun.elapsed() < Duration::from_secs(2));
}

// S31: long pauses: after a standstill of a day the next pass is at once, and one.
#[tokio::test(start_paused = true)]
async fn a_standstill_is_no_debt() {
    let table = Made::new(|_, _, _| rows(0));
    let task = tokio::spawn(
        Purger::new()
            .interval(INTERVAL)
            .table("keys", Arc::clone(&table) as _)
            .run(sleep(Duration::from_secs(24 * 3600 + 60))),
    );
    sleep(Duration::from_secs(5)).await;
    let before = table.calls();
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(table.calls(), before + 1);
    task.await.unwrap();
    assert!(table.calls() < before + 10);
}
