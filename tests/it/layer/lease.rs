//! The lease that is kept alive beside a handler (S20, S21).

use std::time::Duration;

use axum::Router;
use idempotency::testing::ManualClock;
use idempotency::{ErrorKind, IdempotencyLayer, MemoryStore, Scope};

use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Answered, Runs, post, send};

// H44, cases L14 and L23: a handler that outlives its lease keeps its key, by renewals.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_key() {
    let (runs, clock) = (Runs::default(), ManualClock::default());
    let store = MemoryStore::new().lease(Duration::from_secs(3)).unwrap().clock(clock.clone());
    let handler = runs.clone();
    let app = Router::new().fallback(async move || {
        handler.next();
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            clock.advance(Duration::from_millis(500));
        }
        "done"
    });
    let here = app.clone().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let there = app.layer(IdempotencyLayer::new(store, Scope::shared()));
    let first = tokio::spawn(async move { send(&here, post("k")).await });
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(send(&there, post("k")).await.said(), "409 in-progress");
    }
    assert_eq!(first.await.unwrap().text(), "done");
    assert_eq!(runs.count(), 1);
}

// S20: a handler that blocks its worker from its first poll on keeps its key too, since nothing of the heartbeat waits
// for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_worker_keeps_its_key() {
    let (runs, store) = (Runs::default(), MemoryStore::new().lease(Duration::from_millis(1500)).unwrap());
    let handler = runs.clone();
    let app = Router::new().fallback(async move || {
        handler.next();
        std::thread::sleep(Duration::from_millis(4000));
        "done"
    });
    let here = app.clone().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let there = app.layer(IdempotencyLayer::new(store, Scope::shared()));
    let first = tokio::spawn(async move { send(&here, post("k")).await });
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(send(&there, post("k")).await.said(), "409 in-progress");
    }
    assert_eq!(first.await.unwrap().text(), "done");
    assert_eq!(runs.count(), 1);
}

// H44: a lease of any length, too.
#[tokio::test]
async fn the_longest_lease_works() {
    let store = MemoryStore::new().lease(Duration::MAX).unwrap();
    let app = Runs::default().app().layer(IdempotencyLayer::new(store, Scope::shared()));
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    assert!(send(&app, post("k")).await.is_replay());
}

/// One request whose handler takes `seconds`, on a lease of 30 s.
async fn slow(store: &Fake, seconds: u64) -> Answered {
    let app = Router::new().fallback(async move || {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        "done"
    });
    send(&app.layer(IdempotencyLayer::new(store.clone(), Scope::shared())), post("k")).await
}

// S20: every third of it, and no more after the end.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_every_third_of_it() {
    for (seconds, renewals) in [(0, 0), (9, 0), (11, 1), (65, 6)] {
        let store = Fake::new().lease();
        assert_eq!(slow(&store, seconds).await.text(), "done");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!((store.renewals(), store.settlements()), (renewals, vec!["commit"]), "{seconds}");
    }
}

// S20, case L15: counted, and tried again.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_not_a_lost_lease() {
    let counters = Counters::default();
    let _guard = counters.install();
    let store =
        Fake::new().on_renew(|call| async move { if call < 3 { Err(ErrorKind::Unavailable.into()) } else { Ok(()) } });
    assert_eq!(slow(&store, 45).await.text(), "done");
    assert_eq!((counters.of("renewal_failed"), counters.of("lease_lost"), store.renewals()), (2, 0, 4));
    assert_eq!(store.settlements(), ["commit"]);
}

// H35, S20: the store says that it is lost. Its settlement is fenced, and nobody asks for it again.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_counted_and_its_answer_not_given() {
    let counters = Counters::default();
    let _guard = counters.install();
    let store = Fake::new().on_renew(|_| async { Err(ErrorKind::LeaseLost.into()) }).unsettled(ErrorKind::LeaseLost);
    assert_eq!(slow(&store, 45).await.said(), "409 lease-lost");
    assert_eq!((counters.of("lease_lost"), store.renewals()), (1, 1));
}

// S20: cancel safe. A renewal that hangs holds nobody up, and is given up for the next one.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_hold_the_answer_back() {
    let store = Fake::new().on_renew(|_| std::future::pending());
    let start = tokio::time::Instant::now();
    assert_eq!(slow(&store, 45).await.text(), "done");
    assert_eq!((start.elapsed().as_secs(), store.renewals()), (45, 4));
    assert_eq!(store.settlements(), ["commit"]);
}

// S20: by this host's own deadline, counted from the sending. Renewing goes on, since nobody need have taken over.
#[tokio::test(start_paused = true)]
async fn a_lease_without_renewals_is_lost_by_the_own_deadline() {
    let counters = Counters::default();
    let _guard = counters.install();
    let store =
        Fake::new().on_renew(|call| async move { if call < 5 { Err(ErrorKind::Unavailable.into()) } else { Ok(()) } });
    assert_eq!(slow(&store, 85).await.text(), "done");
    assert_eq!((counters.of("renewal_failed"), counters.of("lease_lost"), store.renewals()), (4, 1, 8));
    assert_eq!(store.settlements(), ["commit"]);
}

// H46, S20: a lost lease is no reason to tell duplicates "in progress": the store knows better.
#[tokio::test(start_paused = true)]
async fn after_a_lost_lease_the_next_request_asks_the_store() {
    let store = Fake::new().on_renew(|_| async { Err(ErrorKind::LeaseLost.into()) });
    let app = Router::new().fallback(std::future::pending::<()>);
    let app = app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let hanging = tokio::spawn({
        let app = app.clone();
        async move { send(&app, post("k")).await }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress");
    assert_eq!(store.claims(), 1, "told from the table of this process");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress");
    assert_eq!(store.claims(), 2, "the store was not asked");
    hanging.abort();
}

// H35: what becomes of the claim is the store's affair; the client gets its answer.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_in_a_renewal_loses_no_answer() {
    let store = Fake::new().on_renew(|_| async { panic!("the store panics") });
    assert_eq!(slow(&store, 45).await.text(), "done");
}

// S20: a claim that is answered after its lease may have been followed: its handler does not run.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_after_its_lease_is_not_run() {
    let store = Fake::new().lease().on_claim(|call| async move {
        if call == 1 {
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        None
    });
    let runs = Runs::default();
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).claim_timeout(Duration::from_secs(60));
    let app = runs.app().layer(layer);
    assert_eq!(send(&app, post("k")).await.said(), "503 store-unavailable");
    assert_eq!((runs.count(), store.settlements()), (0, vec!["abandon"]));
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
}

/// As [`slow`], with a claim that takes so long.
async fn claimed_slowly(store: Fake, claim: u64, handler: u64) -> (Answered, usize) {
    let store = store.on_claim(move |_| async move {
        tokio::time::sleep(Duration::from_secs(claim)).await;
        None
    });
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).claim_timeout(Duration::from_secs(60));
    let app = Router::new().fallback(async move || {
        tokio::time::sleep(Duration::from_secs(handler)).await;
        "done"
    });
    (send(&app.layer(layer), post("k")).await, store.renewals())
}

// S20: the first third and the own deadline count from the sending of the claim, not from its answer.
#[tokio::test(start_paused = true)]
async fn a_lease_begins_when_its_claim_is_sent() {
    let (answer, renewals) = claimed_slowly(Fake::new().lease(), 12, 5).await;
    assert_eq!((answer.text(), renewals), ("done", 1));
    let counters = Counters::default();
    let _guard = counters.install();
    let down = Fake::new().on_renew(|_| async { Err(ErrorKind::Unavailable.into()) });
    let (answer, renewals) = claimed_slowly(down, 20, 15).await;
    assert_eq!((answer.text(), renewals, counters.of("lease_lost")), ("done", 2, 1));
}
