//! Handlers that call somebody else (S21, S22), and answers that are recorded late (H35).

use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use idempotency::store::OnUnknown;
use idempotency::testing::ManualClock;
use idempotency::{Attempt, ErrorKind, IdempotencyLayer, MemoryStore, Outcome, Scope};
use tower_http::catch_panic::CatchPanicLayer;

use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Runs, layer, post, post_body, send};

/// A service whose handler says that it calls out, then does as it is told; and the runs.
fn service<F, R>(store: MemoryStore, then: F) -> (Router, Runs)
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: IntoResponse,
{
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move |attempt: Attempt| {
        handler.next();
        attempt.dispatching().await.unwrap();
        assert!(attempt.is_dispatched());
        then()
    });
    (app.layer(IdempotencyLayer::new(store, Scope::shared())).layer(CatchPanicLayer::new()), runs)
}

fn broken_body() -> Response {
    let chunks = [Ok("a"), Err(std::io::Error::other("broke off"))];
    Response::new(axum::body::Body::from_stream(futures_util::stream::iter(chunks)))
}

// S22, cases T16, L03: what may have been done is not run again, and another request is still told so.
#[tokio::test]
async fn a_failure_after_a_call_out_is_unknown() {
    for status in [500, 502, 503, 504, 408, 425, 429] {
        let (app, runs) = service(MemoryStore::new(), move || http::StatusCode::from_u16(status).unwrap());
        assert_eq!(send(&app, post("k")).await.status, status, "the first client gets the handler's answer");
        for _ in 0..2 {
            let told = send(&app, post("k")).await;
            assert_eq!(told.said(), "409 outcome-unknown");
            assert_eq!(told.header("retry-after"), None, "waiting does not help");
        }
        assert_eq!(send(&app, post_body("k", "other")).await.said(), "422 key-reused");
        assert_eq!(runs.count(), 1);
    }
}

// S22
#[tokio::test]
async fn a_panic_or_a_broken_body_after_a_call_out_is_unknown() {
    let (app, runs) = service(MemoryStore::new(), || -> Response { panic!("after the call") });
    assert_eq!(send(&app, post("k")).await.status, 500);
    assert_eq!(send(&app, post("k")).await.said(), "409 outcome-unknown");
    assert_eq!(runs.count(), 1);
    let (app, runs) = service(MemoryStore::new(), broken_body);
    assert!(send(&app, post("k")).await.broken.is_some());
    assert_eq!(send(&app, post("k")).await.said(), "409 outcome-unknown");
    assert_eq!(runs.count(), 1);
}

// S22: other 4xx are decisions of whoever was called, unless they say that they will pass.
#[tokio::test]
async fn a_refusal_after_a_call_out_is_kept() {
    for status in [400, 401, 403, 404, 422] {
        let (app, runs) = service(MemoryStore::new(), move || http::StatusCode::from_u16(status).unwrap());
        assert_eq!(send(&app, post("k")).await.status, status);
        let again = send(&app, post("k")).await;
        assert!(again.is_replay() && again.status == status, "{status}");
        assert_eq!(runs.count(), 1);
    }
    let (app, runs) = service(MemoryStore::new(), || (http::StatusCode::CONFLICT, [("retry-after", "1")]));
    assert_eq!(send(&app, post("k")).await.status, 409);
    assert_eq!(send(&app, post("k")).await.said(), "409 outcome-unknown");
    assert_eq!(runs.count(), 1);
}

// H32: the handler's own word, which knows that nothing was done.
#[tokio::test]
async fn the_handlers_word_stands_after_a_call_out() {
    let (app, runs) = service(MemoryStore::new(), || (Outcome::abandon(), http::StatusCode::BAD_GATEWAY));
    for _ in 0..2 {
        assert_eq!(send(&app, post("k")).await.status, 502);
    }
    assert_eq!(runs.count(), 2);
}

// S21
#[tokio::test]
async fn rerun_runs_again_at_once() {
    let store = MemoryStore::new().on_unknown(OnUnknown::Rerun);
    let (app, runs) = service(store, || http::StatusCode::BAD_GATEWAY);
    for _ in 0..2 {
        assert_eq!(send(&app, post("k")).await.status, 502);
    }
    assert_eq!(runs.count(), 2);
}

// S22: before the call everything is as ever.
#[tokio::test]
async fn a_failure_before_the_call_frees_the_key() {
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move |attempt: Attempt| {
        handler.next();
        assert!(!attempt.is_dispatched());
        http::StatusCode::BAD_GATEWAY
    });
    let app = app.layer(layer());
    for _ in 0..2 {
        assert_eq!(send(&app, post("k")).await.status, 502);
    }
    assert_eq!(runs.count(), 2);
}

// S22: a promise that cannot be kept is not given.
#[tokio::test]
async fn a_store_without_leases_lets_nobody_call_out() {
    let app = Router::new().fallback(async |attempt: Attempt| {
        let error = attempt.dispatching().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert!(!attempt.is_dispatched());
    });
    let app = app.layer(IdempotencyLayer::new(Fake::new(), Scope::shared()));
    assert_eq!(send(&app, post("k")).await.status, 200);
}

// S21, S22, case L12: an owner that has lost its lease is told before it calls.
#[tokio::test]
async fn an_attempt_that_was_taken_over_must_not_call_out() {
    let clock = ManualClock::default();
    let store = MemoryStore::new().lease(Duration::from_secs(3)).unwrap().clock(clock.clone());
    let runs = Runs::default();
    let handler = runs.clone();
    let rival = Router::new().fallback(async || "the rival's");
    let rival = rival.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let app = Router::new().fallback(async move |attempt: Attempt| {
        handler.next();
        clock.advance(Duration::from_secs(3));
        assert_eq!(send(&rival, post("k")).await.text(), "the rival's");
        let error = attempt.dispatching().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        "the zombie's"
    });
    let app = app.layer(IdempotencyLayer::new(store, Scope::shared()));
    assert_eq!(send(&app, post("k")).await.said(), "409 lease-lost");
    assert_eq!(send(&app, post("k")).await.text(), "the rival's");
    assert_eq!(runs.count(), 1);
}

// H35, case L22: the client has its answer, and once the store is back so has every retry.
#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_recorded_is_recorded_late() {
    let counters = Counters::default();
    let _guard = counters.install();
    let store = Fake::new().lease().unsettled(ErrorKind::Unavailable);
    let runs = Runs::default();
    let layer = IdempotencyLayer::new(store, Scope::shared());
    let app = runs.app().layer(layer.clone());
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress", "held by its lease meanwhile");
    layer.drain().await;
    assert_eq!((counters.of("unsaved"), counters.of("recorded_late")), (1, 1));
    let again = send(&app, post("k")).await;
    assert!(again.is_replay() && again.text() == "run 1");
}

// H35, H27: a store that does not answer holds a shutdown up for a minute, and no longer.
#[tokio::test(start_paused = true)]
async fn a_late_record_on_a_silent_store_is_given_up_after_a_minute() {
    let store = Fake::new().lease().silent_late().unsettled(ErrorKind::Unavailable);
    let layer = IdempotencyLayer::new(store, Scope::shared());
    let app = Runs::default().app().layer(layer.clone());
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    let start = tokio::time::Instant::now();
    layer.drain().await;
    assert_eq!(start.elapsed().as_secs(), 60);
}
