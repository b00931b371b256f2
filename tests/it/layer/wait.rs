//! Duplicates that wait for the answer (H20).

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use idempotency::layer::IdempotencyLayer;
use idempotency::{ErrorKind, MemoryStore, Scope};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt;
use tower::limit::ConcurrencyLimitLayer;

use crate::support::fake::Fake;
use crate::support::http::{Answered, Gate, Runs, layer, post, post_body, send, settle_down};

const LONG: Duration = Duration::from_secs(60);

fn over<S: idempotency::store::Store>(store: &S) -> IdempotencyLayer<S> {
    IdempotencyLayer::new(store.clone(), Scope::shared()).wait_up_to(LONG).waiters(200, 1000)
}

fn start(app: &Router) -> JoinHandle<Answered> {
    let app = app.clone();
    tokio::spawn(async move { send(&app, post("k")).await })
}

/// Starts so many, one after the other, until each of them waits.
async fn start_waiting(app: &Router, count: usize) -> Vec<JoinHandle<Answered>> {
    let mut waiting = Vec::new();
    for _ in 0..count {
        waiting.push(start(app));
        settle_down().await;
    }
    waiting
}

/// Nobody is left behind.
async fn assert_empty<S: idempotency::store::Store>(layer: &IdempotencyLayer<S>) {
    settle_down().await;
    assert_eq!((layer.waiting(), layer.keys_in_flight(), layer.running()), (0, 0, 0));
}

/// The first run ends with this status, later ones with 201; each says its number.
fn first_ends(gate: &Gate, runs: &Runs, status: StatusCode) -> Router {
    let (gate, runs) = (gate.clone(), runs.clone());
    Router::new().fallback(async move || {
        let run = runs.next();
        gate.pass().await;
        if status == StatusCode::IM_A_TEAPOT && run == 1 {
            panic!("the first run panics");
        }
        (if run == 1 { status } else { StatusCode::CREATED }, format!("run {run}"))
    })
}

// H20: Commit and Refuse wake all with the record just settled; the store is not asked again.
#[tokio::test(start_paused = true)]
async fn all_who_wait_get_the_record_just_settled() {
    for status in [StatusCode::CREATED, StatusCode::PAYMENT_REQUIRED] {
        let (gate, runs, store) = (Gate::new(), Runs::default(), Fake::new());
        let layer = over(&store);
        let app = first_ends(&gate, &runs, status).layer(layer.clone());
        let first = start(&app);
        gate.entered().await;
        let waiting = start_waiting(&app, 100).await;
        assert_eq!(layer.waiting(), 100);
        gate.open(1);
        assert_eq!((first.await.unwrap().status, runs.count()), (status, 1));
        for waiter in waiting {
            let answer = waiter.await.unwrap();
            assert_eq!((answer.status, answer.text(), answer.is_replay()), (status, "run 1", true));
        }
        assert_eq!(store.claims(), 1);
        assert_empty(&layer).await;
    }
}

// H20: Abandon and panic hand the baton to the one that has waited longest; the others get its answer.
#[tokio::test(start_paused = true)]
async fn when_the_owner_fails_the_longest_waiting_runs_for_all() {
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::IM_A_TEAPOT] {
        let (gate, runs) = (Gate::new(), Runs::default());
        let layer = over(&MemoryStore::new());
        let app = first_ends(&gate, &runs, status).layer(layer.clone());
        let first = start(&app);
        gate.entered().await;
        let mut waiting = start_waiting(&app, 100).await;
        gate.open(1);
        match first.await {
            Ok(answer) => assert_eq!(answer.status, status),
            Err(error) => assert!(error.is_panic() && status == StatusCode::IM_A_TEAPOT),
        }
        gate.entered().await;
        assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
        gate.open(1);
        let runner = waiting.remove(0).await.unwrap();
        assert_eq!((runner.text(), runner.is_replay()), ("run 2", false));
        for waiter in waiting {
            let answer = waiter.await.unwrap();
            assert_eq!((answer.text(), answer.is_replay()), ("run 2", true));
        }
        assert_eq!(runs.count(), 2);
        assert_empty(&layer).await;
    }
}

// H20, Q2: the owner's request is dropped, where that drops its handler.
#[tokio::test(start_paused = true)]
async fn a_dropped_owner_hands_the_baton_on() {
    let (gate, runs, store) = (Gate::new(), Runs::default(), Fake::new());
    let layer = over(&store).cancel_on_disconnect();
    let app = gate.app(&runs).layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let waiting = start_waiting(&app, 3).await;
    first.abort();
    gate.entered().await;
    gate.open(1);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().text(), "run 2");
    }
    assert_empty(&layer).await;
}

async fn poll_times<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        settle_down().await;
    }
    None
}

// H20, Q2: a waiter that is cut at any poll, before and after it got the baton, leaves the others their turn.
#[tokio::test(start_paused = true)]
async fn a_waiter_cut_at_any_poll_passes_its_turn_on() {
    for polls in 0..40 {
        for polls_with_baton in 0..6 {
            let (gate, runs, store) = (Gate::new(), Runs::default(), Fake::new());
            let layer = over(&store).cancel_on_disconnect();
            let app = first_ends(&gate, &runs, StatusCode::SERVICE_UNAVAILABLE).layer(layer.clone());
            let first = start(&app);
            gate.entered().await;
            let mut cut = Box::pin(app.clone().oneshot(post("k")));
            assert!(poll_times(&mut cut, polls).await.is_none(), "it cannot be answered yet");
            let others = start_waiting(&app, 3).await;
            gate.open(1);
            assert_eq!(first.await.unwrap().status, 503);
            settle_down().await;
            let whole = poll_times(&mut cut, polls_with_baton).await.is_some();
            drop(cut);
            gate.open(2);
            for other in others {
                let answer = tokio::time::timeout(LONG / 2, other).await.expect("nobody is left behind").unwrap();
                assert_eq!(answer.status, 201, "{polls} {polls_with_baton}");
            }
            assert!(runs.count() <= 3, "{polls} {polls_with_baton} {whole}");
            assert_empty(&layer).await;
        }
        if polls > 3 {
            // Waiting makes no progress by being polled: the later rounds are all alike.
            break;
        }
    }
}

// H20: caps for a key and in all; beyond them 409 at once (case C28).
#[tokio::test(start_paused = true)]
async fn more_than_may_wait_are_told_409_at_once() {
    for (caps, allowed) in [((2, 100), 2), ((100, 3), 3), ((0, 100), 0)] {
        let (gate, runs) = (Gate::new(), Runs::default());
        let layer = layer().wait_up_to(LONG).waiters(caps.0, caps.1);
        let app = gate.app(&runs).layer(layer.clone());
        let first = start(&app);
        gate.entered().await;
        let waiting = start_waiting(&app, allowed).await;
        let refused = send(&app, post("k")).await;
        assert_eq!((refused.said().as_str(), refused.header("retry-after")), ("409 in-progress", Some("1")));
        // A place that is given up is free for another one.
        if let Some(waiter) = waiting.first() {
            waiter.abort();
            settle_down().await;
            let late = start(&app);
            settle_down().await;
            assert!(!late.is_finished() && layer.waiting() == allowed);
            gate.open(1);
            assert!(late.await.unwrap().is_replay());
        }
        gate.open(1);
        first.await.unwrap();
        assert_empty(&layer).await;
    }
}

// H20: no longer than it is told to.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_409_after_its_time() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let layer = layer().wait_up_to(Duration::from_secs(7));
    let app = gate.app(&runs).layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let started = Instant::now();
    let answer = send(&app, post("k")).await;
    assert_eq!((answer.said().as_str(), answer.header("retry-after")), ("409 in-progress", Some("1")));
    assert_eq!(started.elapsed().as_secs(), 7);
    gate.open(1);
    first.await.unwrap();
    assert_empty(&layer).await;
}

// H21: a mismatch never waits.
#[tokio::test(start_paused = true)]
async fn a_mismatch_is_told_at_once() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let layer = over(&MemoryStore::new());
    let app = gate.app(&runs).layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let started = Instant::now();
    assert_eq!(send(&app, post_body("k", "[1]")).await.said(), "422 key-reused");
    assert!(started.elapsed().is_zero());
    gate.open(1);
    first.await.unwrap();
    assert_empty(&layer).await;
}

// H20, H25: whoever waits holds no place of the inner service.
#[tokio::test(start_paused = true)]
async fn those_who_wait_hold_no_place_in_the_inner_service() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let layer = over(&MemoryStore::new());
    let app = first_ends(&gate, &runs, StatusCode::SERVICE_UNAVAILABLE)
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let waiting = start_waiting(&app, 5).await;
    gate.open(2);
    assert_eq!(first.await.unwrap().status, 503);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().text(), "run 2");
    }
    assert_empty(&layer).await;
}

// H20: for a key that another process runs one request asks for all, every 0.1 to 1 s, and passes it on when it leaves.
#[tokio::test(start_paused = true)]
async fn one_asks_for_all_where_the_request_runs_in_another_process() {
    let (gate, runs, store) = (Gate::new(), Runs::default(), Fake::new());
    let there = gate.app(&runs).layer(over(&store));
    let here = over(&store);
    let app = gate.app(&runs).layer(here.clone());
    let first = start(&there);
    gate.entered().await;
    let waiting = start_waiting(&app, 20).await;
    let before = store.claims();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = store.claims() - before;
    assert!((10..=25).contains(&asked), "{asked} questions in 10 s");
    // Another request's body is a mismatch at once, by the store's word.
    let started = Instant::now();
    assert_eq!(send(&app, post_body("k", "[1]")).await.said(), "422 key-reused");
    assert!(started.elapsed().is_zero());
    // The one that asks leaves.
    waiting[0].abort();
    settle_down().await;
    gate.open(1);
    assert_eq!(first.await.unwrap().text(), "run 1");
    let ended = Instant::now();
    for waiter in waiting.into_iter().skip(1) {
        assert!(waiter.await.unwrap().is_replay());
    }
    assert!(ended.elapsed() <= Duration::from_secs(2), "{:?}", ended.elapsed());
    assert_eq!(runs.count(), 1);
    assert_empty(&here).await;
}

// H20: the other process fails, and one of those who wait here runs.
#[tokio::test(start_paused = true)]
async fn when_the_other_process_fails_one_runs_here() {
    let (gate, runs, store) = (Gate::new(), Runs::default(), Fake::new());
    let there = first_ends(&gate, &runs, StatusCode::SERVICE_UNAVAILABLE).layer(over(&store));
    let here = over(&store);
    let app = first_ends(&gate, &runs, StatusCode::SERVICE_UNAVAILABLE).layer(here.clone());
    let first = start(&there);
    gate.entered().await;
    let waiting = start_waiting(&app, 20).await;
    assert_eq!(here.waiting(), 20);
    gate.open(1);
    assert_eq!(first.await.unwrap().status, 503);
    gate.entered().await;
    assert_eq!(here.waiting(), 19, "whoever runs waits no more");
    gate.open(1);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().text(), "run 2");
    }
    assert_eq!(runs.count(), 2);
    assert_empty(&here).await;
}

// H20, H23: a wait for another process ends with 409, in time; the next in the queue goes on asking.
#[tokio::test(start_paused = true)]
async fn a_wait_for_another_process_ends_in_time() {
    let store =
        Fake::new().on_claim(|_| async { Some(Ok(idempotency::store::Verdict::InProgress { retry_after: None })) });
    let layer = over(&store).wait_up_to(Duration::from_secs(5));
    let app = Runs::default().app().layer(layer.clone());
    let started = Instant::now();
    let first = start(&app);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = start(&app);
    assert_eq!(first.await.unwrap().said(), "409 in-progress");
    assert!(started.elapsed() <= Duration::from_secs(5));
    let before = store.claims();
    assert_eq!(second.await.unwrap().said(), "409 in-progress");
    assert!(store.claims() > before, "nobody asked after the first had gone");
    assert!((6..=7).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_empty(&layer).await;
}

// H20, H23: an error of the one that asks is its own; the next one asks.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_one_that_asks_is_not_shared() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let store = Fake::new().on_claim(|call| async move { (call == 2).then(|| Err(ErrorKind::Unavailable.into())) });
    let layer = over(&store);
    let app = first_ends(&gate, &runs, StatusCode::SERVICE_UNAVAILABLE).layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let waiting = start_waiting(&app, 3).await;
    gate.open(2);
    assert_eq!(first.await.unwrap().status, 503);
    let mut said = Vec::new();
    for waiter in waiting {
        said.push(waiter.await.unwrap().status.as_u16());
    }
    assert_eq!(said, [503, 201, 201]);
    assert_eq!(runs.count(), 2);
    assert_empty(&layer).await;
}

// H40: those who wait are told what a retry would be told.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_kept_is_410_for_those_who_wait() {
    let gate = Gate::new();
    let layer = over(&MemoryStore::new()).answer_limit(3);
    let held = gate.clone();
    let app = Router::new().fallback(async move |_: Request<Body>| {
        held.pass().await;
        Response::new(Body::from("too long"))
    });
    let app = app.layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let waiting = start_waiting(&app, 2).await;
    gate.open(1);
    assert_eq!(first.await.unwrap().text(), "too long");
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().said(), "410 answer-not-kept");
    }
    assert_empty(&layer).await;
}

/// Says that every key runs in another process.
fn elsewhere(retry_after: Option<Duration>) -> Fake {
    Fake::new().on_claim(move |_| async move { Some(Ok(idempotency::store::Verdict::InProgress { retry_after })) })
}

/// Says of the first key that it runs in another process, and is free when it is asked for again.
fn elsewhere_once() -> Fake {
    Fake::new().on_claim(|call| async move {
        let retry_after = Some(Duration::from_secs(2));
        (call == 1).then_some(Ok(idempotency::store::Verdict::InProgress { retry_after }))
    })
}

// H20, H25: nor does the one that asks for all while the request runs in another process.
#[tokio::test(start_paused = true)]
async fn the_one_that_asks_for_all_holds_no_place_in_the_inner_service() {
    let store = elsewhere_once();
    let runs = Runs::default();
    let counter = runs.clone();
    let handler = tower::service_fn(move |_: Request<_>| {
        let answer = Response::new(Body::from(format!("run {}", counter.next())));
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let layer = over(&store);
    let service =
        tower::ServiceBuilder::new().layer(layer.clone()).layer(ConcurrencyLimitLayer::new(1)).service(handler);
    let asking = tokio::spawn({
        let service = service.clone();
        async move { send(&service, post("k")).await }
    });
    settle_down().await;
    let other = tokio::time::timeout(Duration::from_secs(1), send(&service, post("other"))).await;
    assert_eq!(other.expect("the place is free").text(), "run 1");
    assert_eq!(asking.await.unwrap().text(), "run 2");
    assert_empty(&layer).await;
}

// H20: nor does it wait longer than it is told to for a place there.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_while_the_inner_service_is_full() {
    let layer = over(&elsewhere_once()).wait_up_to(Duration::from_secs(5));
    let gate = Gate::new();
    let held = gate.clone();
    let handler = tower::service_fn(move |_: Request<_>| {
        let gate = held.clone();
        async move {
            gate.pass().await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        }
    });
    let service =
        tower::ServiceBuilder::new().layer(layer.clone()).layer(ConcurrencyLimitLayer::new(1)).service(handler);
    let start = |key: &'static str| {
        let service = service.clone();
        tokio::spawn(async move { send(&service, post(key)).await })
    };
    let waiting = start("k");
    settle_down().await;
    let other = start("other");
    gate.entered().await;
    let answer = tokio::time::timeout(Duration::from_secs(6), waiting).await.expect("in time").unwrap();
    assert_eq!(answer.said(), "409 in-progress");
    gate.open(1);
    assert_eq!(other.await.unwrap().status, 200);
    assert_empty(&layer).await;
}

// H20: those that ask for others wait as well, and are counted.
#[tokio::test(start_paused = true)]
async fn those_that_ask_for_all_are_counted() {
    for (caps, allowed) in [((100, 2), 2), ((0, 100), 0)] {
        let layer = over(&elsewhere(None)).waiters(caps.0, caps.1);
        let app = Runs::default().app().layer(layer.clone());
        let asking: Vec<_> = (0..10)
            .map(|key| {
                let app = app.clone();
                tokio::spawn(async move { send(&app, post(&format!("k{key}"))).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(layer.waiting(), allowed);
        assert_eq!(asking.iter().filter(|asking| !asking.is_finished()).count(), allowed);
        for asking in asking {
            assert_eq!(asking.await.unwrap().said(), "409 in-progress");
        }
        assert_empty(&layer).await;
    }
}

// H20: per key, the one that asks is one of those who wait.
#[tokio::test(start_paused = true)]
async fn the_one_that_asks_for_all_counts_for_its_key() {
    let layer = over(&elsewhere(None)).waiters(3, 100);
    let app = Runs::default().app().layer(layer.clone());
    let waiting = start_waiting(&app, 5).await;
    assert_eq!(waiting.iter().filter(|waiter| !waiter.is_finished()).count(), 3);
    assert_eq!(layer.waiting(), 3);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().said(), "409 in-progress");
    }
    assert_empty(&layer).await;
}

// H20: a limit that no clock can hold is a long one, not none.
#[tokio::test(start_paused = true)]
async fn a_limit_without_end_is_a_long_wait() {
    let (gate, runs) = (Gate::new(), Runs::default());
    let layer = layer().wait_up_to(Duration::MAX);
    let app = gate.app(&runs).layer(layer.clone());
    let first = start(&app);
    gate.entered().await;
    let waiting = start_waiting(&app, 1).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    gate.open(1);
    assert!(first.await.unwrap().status == 201 && waiting.into_iter().next().unwrap().await.unwrap().is_replay());
    assert_empty(&layer).await;
}

// H20: whatever a store says of when to ask again, it is neither asked without pause nor for ever.
#[tokio::test(start_paused = true)]
async fn a_store_may_say_any_time() {
    for (said, most) in [(Duration::MAX, 1), (Duration::from_secs(5), 13), (Duration::ZERO, 60 * 10 + 1)] {
        let store = elsewhere(Some(said));
        let layer = over(&store);
        let app = Runs::default().app().layer(layer.clone());
        let answer = tokio::time::timeout(LONG * 2, start(&app)).await.unwrap().unwrap();
        assert_eq!(answer.said(), "409 in-progress");
        assert!(store.claims() <= most, "{said:?}: {} questions", store.claims());
        assert_empty(&layer).await;
    }
}

// H20, H23: what is known to run elsewhere is not run here because the store has gone meanwhile.
#[tokio::test(start_paused = true)]
async fn who_has_waited_does_not_run_unprotected() {
    let store = Fake::new().on_claim(|call| async move {
        Some(match call {
            1 => Ok(idempotency::store::Verdict::InProgress { retry_after: None }),
            _ => Err(ErrorKind::Unavailable.into()),
        })
    });
    let runs = Runs::default();
    let layer = over(&store).run_unprotected_without_store();
    let app = runs.app().layer(layer.clone());
    for waiter in start_waiting(&app, 3).await {
        assert_eq!(waiter.await.unwrap().said(), "503 store-unavailable");
    }
    assert_eq!(runs.count(), 0);
    assert_empty(&layer).await;
    // Nobody has said of this one that it runs.
    assert_eq!(send(&app, post("other")).await.text(), "run 1");
}

/// The next of a row of numbers, below `bound`; one that can be repeated.
fn next(seed: &AtomicU64, bound: u64) -> u64 {
    let seed = seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 31)) % bound
}

// H20, Q2: two processes, few keys, handlers that fail, clients that leave: everybody is answered, nothing is left behind,
// and where leaving does not drop a run, at most one of a key commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_is_left_behind_in_the_crowd() {
    for round in 0..12 {
        let (store, cancels) = (Fake::new(), round % 2 == 0);
        let layers = [0, 1].map(|_| over(&store).waiters(20, 200));
        let layers = layers.map(|layer| if cancels { layer.cancel_on_disconnect() } else { layer });
        let seed = Arc::new(AtomicU64::new(round));
        let committed = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
        let (count, random) = (Arc::clone(&committed), Arc::clone(&seed));
        let app = Router::new().fallback(async move |request: Request<Body>| {
            for _ in 0..next(&random, 5) {
                tokio::task::yield_now().await;
            }
            if next(&random, 3) > 0 {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            let key = request.headers()["idempotency-key"].to_str().unwrap();
            *count.lock().unwrap().entry(key.to_owned()).or_default() += 1;
            StatusCode::CREATED
        });
        let apps = layers.clone().map(|layer| app.clone().layer(layer));
        let client = |_| {
            let app = apps[usize::from(next(&seed, 2) == 0)].clone();
            let (key, leaves) = (format!("k{}", next(&seed, 4)), next(&seed, 3) == 0);
            let patience = if leaves { Duration::from_micros(next(&seed, 3000)) } else { LONG / 3 };
            tokio::spawn(async move {
                match tokio::time::timeout(patience, send(&app, post(&key))).await {
                    Ok(answer) => assert!([201, 409, 503].contains(&answer.status.as_u16()), "{answer:?}"),
                    Err(_) => assert!(leaves, "left behind"),
                }
            })
        };
        for client in (0..200).map(client).collect::<Vec<_>>() {
            client.await.unwrap();
        }
        for layer in &layers {
            layer.drain().await;
            let left = || (layer.waiting(), layer.keys_in_flight(), layer.running());
            let until = Instant::now() + Duration::from_secs(5);
            while left() != (0, 0, 0) {
                assert!(Instant::now() < until, "{:?}", left());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let committed = committed.lock().unwrap();
        assert!(!committed.is_empty() && (cancels || committed.values().all(|runs| *runs == 1)), "{committed:?}");
    }
}
