//! What a handler gets from the layer (H28).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::any;
use http::{Method, StatusCode};
use idempotency::store::Fence;
use idempotency::testing::ManualClock;
use idempotency::{Attempt, IdempotencyLayer, MemoryStore, Scope, Tx, TxError};
use sqlx::Postgres;

use crate::support::fake::Fake;
use crate::support::http::{layer, post, post_body, request, send};

// H28
#[tokio::test]
async fn a_handler_sees_its_attempt() {
    let app = Router::new().fallback(any(async |attempt: Attempt| {
        assert_eq!(attempt.scope().as_str(), "alice");
        assert_eq!((attempt.number(), attempt.fence()), (1, Some(Fence(1))));
        let left = attempt.deadline().unwrap().duration_since(std::time::Instant::now());
        assert!(left > Duration::from_secs(25) && left <= Duration::from_secs(30), "{left:?}");
        assert!(!format!("{attempt:?}").contains("k-secret") && !format!("{attempt:?}").contains("alice"));
        attempt.derive("charge").to_string()
    }));
    let app = app.layer(IdempotencyLayer::new(MemoryStore::new(), Scope::from_fn(|_| Some("alice"))));
    assert_eq!(send(&app, post("k-secret")).await.said(), "200");
}

// H28: a transactional store has neither fence nor deadline.
#[tokio::test]
async fn an_attempt_under_a_transaction_has_no_lease() {
    let app = Router::new().fallback(any(async |attempt: Attempt| {
        assert_eq!((attempt.fence(), attempt.deadline()), (None, None));
    }));
    assert_eq!(send(&app.layer(IdempotencyLayer::new(Fake::new(), Scope::shared())), post("k")).await.said(), "200");
}

// H28, D5: one id for every attempt at an operation, another for every other one.
#[tokio::test]
async fn a_derived_id_is_the_same_for_all_attempts() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let ids = Arc::clone(&seen);
    let app = Router::new().fallback(any(async move |attempt: Attempt| {
        ids.lock().unwrap().push((attempt.derive("charge"), attempt.derive("mail")));
        StatusCode::SERVICE_UNAVAILABLE
    }));
    let app = app.layer(layer());
    send(&app, post("k")).await;
    send(&app, post("\"k\"")).await;
    send(&app, post_body("k", "[]")).await;
    send(&app, post("other")).await;
    let ids = seen.lock().unwrap();
    assert_eq!(ids[0], ids[1]);
    let all: std::collections::HashSet<_> = ids[1..].iter().flat_map(|(charge, mail)| [charge, mail]).collect();
    assert_eq!(all.len(), 6);
}

// H28, cases L01 and L06: the attempt after a lease that ended knows that it is not the first.
#[tokio::test]
async fn an_attempt_after_an_ended_lease_has_the_next_number_and_a_larger_fence() {
    let clock = ManualClock::default();
    let store = MemoryStore::new().clock(clock.clone());
    let app = |seen: Arc<Mutex<Vec<(u64, Fence)>>>| {
        let handler = async move |attempt: Attempt| {
            let first = {
                let mut seen = seen.lock().unwrap();
                seen.push((attempt.number(), attempt.fence().unwrap()));
                seen.len() == 1
            };
            if first {
                std::future::pending::<()>().await;
            }
        };
        // Two layers: another process.
        Router::new().fallback(any(handler)).layer(IdempotencyLayer::new(store.clone(), Scope::shared()))
    };
    let seen = Arc::default();
    let dead = tokio::spawn({
        let app = app(Arc::clone(&seen));
        async move { send(&app, post("k")).await }
    });
    crate::support::http::settle_down().await;
    clock.advance(Duration::from_secs(30));
    assert_eq!(send(&app(Arc::clone(&seen)), post("k")).await.said(), "200");
    dead.abort();
    assert_eq!(*seen.lock().unwrap(), [(1, Fence(1)), (2, Fence(2))]);
}

// H28: where there is no key there is no attempt.
#[tokio::test]
async fn a_request_without_a_key_has_no_attempt() {
    let optional = any(async |attempt: Option<Attempt>| attempt.is_some().to_string());
    let app = Router::new().route("/optional", optional).route("/", any(async |_: Attempt| "attempt")).layer(layer());
    assert_eq!(send(&app, request(Method::POST, "/optional", None, "")).await.text(), "false");
    assert_eq!(send(&app, request(Method::POST, "/optional", Some("k"), "")).await.text(), "true");
    assert_eq!(send(&app, request(Method::GET, "/optional", Some("k"), "")).await.text(), "false");
    // The client's fault where the layer stands guard, the service's where it does not.
    assert_eq!(send(&app, request(Method::POST, "/", None, "")).await.said(), "400 missing-key");
    assert_eq!(send(&app, request(Method::GET, "/", Some("k"), "")).await.said(), "500 no-transaction");
}

// H28: a store without transactions lends none; the rejection is the wiring's fault and is not stored.
#[tokio::test]
async fn a_transaction_that_nobody_lends_is_a_wiring_fault() {
    let optional = any(async |tx: Option<Tx<Postgres>>| tx.is_some().to_string());
    let taken = any(async |request: axum::extract::Request| {
        assert!(!Tx::<Postgres>::is_lent(request.extensions()));
        let error = Tx::<Postgres>::take(request.extensions()).await.unwrap_err();
        assert!(matches!(error, TxError::Absent));
        error.into_response()
    });
    let app = Router::new()
        .route("/optional", optional)
        .route("/taken", taken)
        .route("/", any(async |_: Tx<Postgres>| "tx"))
        .layer(layer());
    for key in [Some("k"), None] {
        for path in ["/", "/taken"] {
            for _ in 0..2 {
                let refused = send(&app, request(Method::POST, path, key, "")).await;
                assert_eq!(refused.said(), "500 no-transaction", "{path} {key:?}");
                assert!(!refused.is_replay());
                assert!(!refused.headers.contains_key("retry-after"));
            }
        }
        assert_eq!(send(&app, request(Method::POST, "/optional", key, "")).await.text(), "false");
    }
}

// H28: for unit tests of handlers.
#[test]
fn an_attempt_can_be_made_for_a_unit_test() {
    let attempt = idempotency::testing::attempt("k").unwrap();
    assert_eq!((attempt.number(), attempt.fence(), attempt.deadline()), (1, None, None));
    assert!(idempotency::testing::attempt("").is_err());
}
