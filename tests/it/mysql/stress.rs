//! Many sessions at keys that are being claimed and committed: no honest one is ever told that its key is another's,
//! no wrong one ever gets an answer (H21).

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use idempotency::store::{Claim, Isolation, Kept, Settlement, Store, Verdict};
use idempotency::testing::store::{Harness, answer, request};
use tokio::task::JoinSet;

use crate::support::mysql::{MySqlHarness, Way, pool_of};

const OWNERS: usize = 4;
const ASKERS: usize = 12;
const LASTS: Duration = Duration::from_secs(4);

#[derive(Default)]
struct Counts {
    owned: AtomicU64,
    honest: AtomicU64,
    wrong_told_mismatch: AtomicU64,
    wrong_told_busy: AtomicU64,
    honest_told_mismatch: AtomicU64,
}

/// Claims one key after the other and shows each to the askers while it runs and after.
async fn own<S: Store>(store: S, number: usize, shown: Arc<Mutex<String>>, stop: Arc<AtomicBool>, counts: Arc<Counts>) {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let key = format!("owner {number} turn {turn}");
        let Verdict::Claimed(claim) = store.claim(&request(&key, 1)).await.unwrap() else {
            panic!("a fresh key is not free")
        };
        *shown.lock().unwrap() = key;
        counts.owned.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(turn % 4)).await;
        let kept = Kept { answer: answer("done"), retention: Duration::from_secs(3600) };
        claim.settle(Settlement::Commit(kept)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(turn % 3)).await;
    }
}

async fn ask<S: Store>(store: S, number: usize, shown: Arc<Mutex<String>>, stop: Arc<AtomicBool>, counts: Arc<Counts>) {
    let is_honest = !number.is_multiple_of(3);
    while !stop.load(Ordering::Relaxed) {
        let key = shown.lock().unwrap().clone();
        if key.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let verdict = store.claim(&request(&key, if is_honest { 1 } else { 2 })).await.unwrap();
        let counter = match (verdict, is_honest) {
            (Verdict::Replay(_) | Verdict::InProgress { .. }, true) => &counts.honest,
            (Verdict::Mismatch, true) => &counts.honest_told_mismatch,
            (Verdict::Mismatch, false) => &counts.wrong_told_mismatch,
            (Verdict::InProgress { .. }, false) => &counts.wrong_told_busy,
            (Verdict::Replay(_), false) => panic!("a wrong session got an answer"),
            _ => panic!("a second owner, or an orphan"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

async fn hammer(way: Way, isolation: Isolation) {
    let pool = pool_of(u32::try_from(OWNERS + ASKERS).unwrap() + 2).await;
    let store = MySqlHarness::on(pool, way, isolation).await.store().await;
    let counts = Arc::new(Counts::default());
    let stop = Arc::new(AtomicBool::new(false));
    let mut sessions = JoinSet::new();
    for owner in 0..OWNERS {
        let shown = Arc::new(Mutex::new(String::new()));
        sessions.spawn(own(store.clone(), owner, Arc::clone(&shown), Arc::clone(&stop), Arc::clone(&counts)));
        for asker in 0..ASKERS / OWNERS {
            sessions.spawn(ask(store.clone(), asker, Arc::clone(&shown), Arc::clone(&stop), Arc::clone(&counts)));
        }
    }
    tokio::time::sleep(LASTS).await;
    stop.store(true, Ordering::Relaxed);
    sessions.join_all().await;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{way:?} {isolation:?}: {} keys, {} honest asked, {} wrong told 422, {} wrong told 409 first, {} honest told 422",
        read(&counts.owned),
        read(&counts.honest),
        read(&counts.wrong_told_mismatch),
        read(&counts.wrong_told_busy),
        read(&counts.honest_told_mismatch),
    );
    assert!(read(&counts.owned) > 100 && read(&counts.honest) > 500, "the test did not hammer");
    assert!(read(&counts.wrong_told_mismatch) > 100, "no mismatch was met");
    assert_eq!(read(&counts.honest_told_mismatch), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_honest_session_is_ever_told_that_its_key_is_anothers() {
    hammer(Way::NoWait, Isolation::ReadCommitted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_with_a_named_lock() {
    hammer(Way::NamedLock, Isolation::ReadCommitted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_under_repeatable_read() {
    hammer(Way::NoWait, Isolation::RepeatableRead).await;
    hammer(Way::NamedLock, Isolation::RepeatableRead).await;
}
