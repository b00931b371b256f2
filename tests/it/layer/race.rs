//! Many requests with one key at once (H20–H22, H46).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use idempotency::store::Verdict;
use idempotency::{ErrorKind, IdempotencyLayer, MemoryStore, Scope};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use crate::support::fake::Fake;
use crate::support::http::{Gate, Runs, layer, post, post_body, send, settle_down};

// H20, cases C01, C05, C30 and D12
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_requests_at_once_run_once() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let layer = layer();
    let app = gate.app(&runs).layer(layer.clone());
    let start = Arc::new(Barrier::new(50));
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let (app, start) = (app.clone(), Arc::clone(&start));
        all.spawn(async move {
            start.wait().await;
            send(&app, post("k")).await
        });
    }
    gate.entered().await;
    for _ in 0..49 {
        let refused = all.join_next().await.unwrap().unwrap();
        assert_eq!(refused.said(), "409 in-progress");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!(wait >= 1);
    }
    gate.open(1);
    assert_eq!(all.join_next().await.unwrap().unwrap().said(), "201");
    assert_eq!(runs.count(), 1);
    layer.drain().await;
    assert_eq!(layer.keys_in_flight(), 0);
}

// H20, cases C02 and C04: again and again, on two layers over one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_round_of_a_race_has_one_run() {
    let store = MemoryStore::new();
    let layers = [0, 1].map(|_| IdempotencyLayer::new(store.clone(), Scope::shared()));
    for round in 0..200 {
        let runs = Runs::default();
        let key = format!("round {round}");
        let mut all = JoinSet::new();
        for client in 0..8_usize {
            let handler = runs.clone();
            let app = axum::Router::new().fallback(async move || {
                let run = handler.next();
                for _ in 0..client {
                    tokio::task::yield_now().await;
                }
                (StatusCode::CREATED, format!("run {run}"))
            });
            let (app, request) = (app.layer(layers[client % 2].clone()), post(&key));
            all.spawn(async move { send(&app, request).await });
        }
        while let Some(answer) = all.join_next().await {
            let answer = answer.unwrap();
            let said = answer.said();
            assert!(said == "409 in-progress" || (said == "201" && answer.text() == "run 1"), "{said}");
        }
        assert_eq!(runs.count(), 1, "round {round}");
    }
    for layer in layers {
        layer.drain().await;
        assert_eq!(layer.keys_in_flight(), 0);
    }
}

// H21, cases C12 and C31: 422 outranks 409, in this process and by the store.
#[tokio::test]
async fn another_request_is_a_mismatch_while_the_first_runs_and_after() {
    let (runs, gate, store) = (Runs::default(), Gate::new(), MemoryStore::new());
    let here = gate.app(&runs).layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let there = gate.app(&runs).layer(IdempotencyLayer::new(store, Scope::shared()));
    let first = tokio::spawn({
        let here = here.clone();
        async move { send(&here, post("k")).await }
    });
    gate.entered().await;
    for app in [&here, &there] {
        assert_eq!(send(app, post("k")).await.said(), "409 in-progress");
        let other = send(app, post_body("k", "[]")).await;
        assert_eq!(other.said(), "422 key-reused");
        assert!(!other.headers.contains_key("retry-after"));
    }
    gate.open(1);
    assert_eq!(first.await.unwrap().said(), "201");
    for app in [&here, &there] {
        // H22, case D14
        let replay = send(app, post("k")).await;
        assert!(replay.is_replay() && replay.text() == "run 1");
        // Case F11: twice.
        for _ in 0..2 {
            assert_eq!(send(app, post_body("k", "[]")).await.said(), "422 key-reused");
        }
    }
    assert_eq!(runs.count(), 1);
}

/// A store whose first claim waits until the test lets it go on, then does what `then` says.
fn slow_to_answer(then: Option<ErrorKind>) -> (Fake, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let store = Fake::new().on_claim({
        let go = Arc::clone(&go);
        move |call| {
            let go = Arc::clone(&go);
            async move {
                if call > 1 {
                    return None;
                }
                go.acquire().await.unwrap().forget();
                then.map(|kind| Err(kind.into()))
            }
        }
    });
    (store, go)
}

// H46: a thousand duplicates of one slow request cost the store next to nothing.
#[tokio::test]
async fn a_thousand_duplicates_ask_the_store_once() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let (store, go) = slow_to_answer(None);
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = gate.app(&runs).layer(layer.clone());
    let mut all = JoinSet::new();
    for number in 0..1000 {
        let app = app.clone();
        // Every tenth is another request: it waits for the verdict too.
        let request = if number % 10 == 9 { post_body("k", "[]") } else { post("k") };
        all.spawn(async move { send(&app, request).await });
    }
    settle_down().await;
    assert_eq!((store.claims(), layer.keys_in_flight()), (1, 1));
    go.add_permits(1);
    let mut said = std::collections::BTreeMap::new();
    for _ in 0..999 {
        *said.entry(all.join_next().await.unwrap().unwrap().said()).or_insert(0) += 1;
    }
    assert_eq!(said, [("409 in-progress".into(), 899), ("422 key-reused".into(), 100)].into());
    gate.open(1);
    assert_eq!(all.join_next().await.unwrap().unwrap().said(), "201");
    assert_eq!((runs.count(), store.claims()), (1, 1));
    layer.drain().await;
    assert_eq!(layer.keys_in_flight(), 0);
}

// H46: the record just returned is shared, through the same decision.
#[tokio::test]
async fn a_replay_is_shared_with_those_who_waited_for_it() {
    let runs = Runs::default();
    let go = Arc::new(Semaphore::new(0));
    let store = Fake::new().on_claim({
        let go = Arc::clone(&go);
        move |call| {
            let go = Arc::clone(&go);
            async move {
                if call == 2 {
                    go.acquire().await.unwrap().forget();
                }
                None
            }
        }
    });
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = runs.app().layer(layer.clone());
    assert_eq!(send(&app, post("k")).await.said(), "201");
    let mut all = JoinSet::new();
    for number in 0..100 {
        let app = app.clone();
        let request = if number % 10 == 9 { post_body("k", "[]") } else { post("k") };
        all.spawn(async move { send(&app, request).await });
    }
    settle_down().await;
    assert_eq!(store.claims(), 2);
    go.add_permits(1);
    let answers = all.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_replay() && answer.text() == "run 1").count(), 90);
    assert_eq!(answers.iter().filter(|answer| answer.said() == "422 key-reused").count(), 10);
    assert_eq!((runs.count(), store.claims(), layer.keys_in_flight()), (1, 2, 0));
}

// H46, H21: what the store tells one request is no verdict on another one.
#[tokio::test]
async fn a_mismatch_of_one_request_is_none_of_the_others() {
    let runs = Runs::default();
    let (store, go) = (Fake::new(), Arc::new(Semaphore::new(0)));
    let store = store.on_claim({
        let go = Arc::clone(&go);
        move |call| {
            let go = Arc::clone(&go);
            async move {
                if call == 2 {
                    go.acquire().await.unwrap().forget();
                }
                None
            }
        }
    });
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = runs.app().layer(layer.clone());
    assert_eq!(send(&app, post("k")).await.said(), "201");
    let mut all = JoinSet::new();
    // The one who asks is not the owner; the honest retries wait behind it.
    for number in 0..20 {
        let app = app.clone();
        let request = if number % 2 == 0 { post_body("k", "[]") } else { post("k") };
        all.spawn(async move { (number, send(&app, request).await) });
        settle_down().await;
    }
    assert_eq!(store.claims(), 2);
    go.add_permits(1);
    for (number, answer) in all.join_all().await {
        assert_eq!(answer.said(), if number % 2 == 0 { "422 key-reused" } else { "201" }, "{number}");
    }
    assert!(store.claims() <= 4, "{}", store.claims());
    assert_eq!((runs.count(), layer.keys_in_flight()), (1, 0));
}

// H46: an error is no verdict: the next one asks.
#[tokio::test]
async fn after_an_error_the_next_one_asks() {
    let runs = Runs::default();
    let (store, go) = slow_to_answer(Some(ErrorKind::Unavailable));
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = runs.app().layer(layer.clone());
    let mut all = JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        all.spawn(async move { send(&app, post("k")).await.said() });
        settle_down().await;
    }
    go.add_permits(1);
    let said = all.join_all().await;
    assert_eq!(said.iter().filter(|said| *said == "503 store-unavailable").count(), 1, "{said:?}");
    assert!(said.iter().any(|said| said == "201"), "{said:?}");
    assert_eq!((runs.count(), layer.keys_in_flight()), (1, 0));
}

// H46: waiting for somebody else's verdict is bounded by the claim timeout, however often the asker changes.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_verdict_ends_with_the_claim_timeout() {
    let store = Fake::new().on_claim(|_| async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Some(Err(ErrorKind::Unavailable.into()))
    });
    let layer = IdempotencyLayer::new(store, Scope::shared()).claim_timeout(Duration::from_secs(5));
    let app = Runs::default().app().layer(layer.clone());
    let start = tokio::time::Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        all.spawn(async move { send(&app, post("k")).await.said() });
    }
    for said in all.join_all().await {
        assert!(["503 store-unavailable", "409 in-progress"].contains(&said.as_str()), "{said}");
    }
    // One wait, and one question of one's own.
    assert!(start.elapsed() <= Duration::from_secs(7), "{:?}", start.elapsed());
    assert_eq!(layer.keys_in_flight(), 0);
}

// H20: the store may know better when to ask again. H42
#[tokio::test]
async fn a_stores_own_retry_after_is_passed_on() {
    for (wait, seconds) in [(None, "1"), (Some(Duration::from_millis(2500)), "3"), (Some(Duration::ZERO), "1")] {
        let store = Fake::new().on_claim(move |_| async move { Some(Ok(Verdict::InProgress { retry_after: wait })) });
        let app = Runs::default().app().layer(IdempotencyLayer::new(store, Scope::shared()));
        let answer = send(&app, post("k")).await;
        assert_eq!((answer.said().as_str(), answer.header("retry-after")), ("409 in-progress", Some(seconds)));
    }
    // Those who wait for the verdict are told the same.
    let store = Fake::new().on_claim(|_| async {
        settle_down().await;
        Some(Ok(Verdict::InProgress { retry_after: Some(Duration::from_secs(7)) }))
    });
    let app = Runs::default().app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let mut all = JoinSet::new();
    for _ in 0..10 {
        let app = app.clone();
        all.spawn(async move { send(&app, post("k")).await });
    }
    for answer in all.join_all().await {
        assert_eq!((answer.said().as_str(), answer.header("retry-after")), ("409 in-progress", Some("7")));
    }
    assert_eq!(store.claims(), 1);
    // "For ever" is a time, too.
    let store = Fake::new().on_claim(|_| async { Some(Ok(Verdict::InProgress { retry_after: Some(Duration::MAX) })) });
    let app = Runs::default().app().layer(IdempotencyLayer::new(store, Scope::shared()));
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress");
}
