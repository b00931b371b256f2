//! The body of a guarded request (H19).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use http::Request;
use idempotency::{IdempotencyLayer, MemoryStore, Scope};
use tower_http::limit::RequestBodyLimitLayer;

use crate::support::bodies::{Script, Step};
use crate::support::http::{KEY, Runs, layer, send};

fn with(body: Script) -> Request<Body> {
    Request::post("/").header(KEY, "k").body(Body::new(body)).unwrap()
}

// H19: 413 before reading where the length is known.
#[tokio::test]
async fn a_body_that_is_known_to_be_too_large_is_refused_unread() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().body_limit(4));
    let body = Script::chunks(["12345"]).hint(5);
    let polls = Arc::clone(&body.polls);
    assert_eq!(send(&app, with(body)).await.said(), "413 body-too-large");
    assert_eq!(polls.load(Ordering::SeqCst), 0);
    assert_eq!(send(&app, with(Script::chunks(["1234"]).hint(4))).await.said(), "201");
    assert_eq!(runs.count(), 1);
}

// H19: else before the claim, and no more is read than it takes to know.
#[tokio::test]
async fn a_body_that_turns_out_too_large_is_refused_before_the_claim() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let app = runs.app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()).body_limit(4));
    let body = Script::new([Step::Data("123"), Step::Yield, Step::Data("45"), Step::Panic]);
    assert_eq!(send(&app, with(body)).await.said(), "413 body-too-large");
    assert!(store.is_empty());
    assert_eq!(send(&app, with(Script::chunks(["12", "", "34"]))).await.said(), "201");
    assert_eq!(runs.count(), 1);
}

// H19
#[tokio::test]
async fn the_default_limit_is_two_mebibytes() {
    let app = Runs::default().app().layer(layer());
    let sized = |bytes: usize| Request::post("/").header(KEY, "k").body(Body::from(vec![b'a'; bytes])).unwrap();
    assert_eq!(send(&app, sized(2 * 1024 * 1024 + 1)).await.said(), "413 body-too-large");
    assert_eq!(send(&app, sized(2 * 1024 * 1024)).await.said(), "201");
}

// H19: a limiter outside speaks by an error of the body.
#[tokio::test]
async fn a_limit_outside_is_413_too() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = runs.app().layer(layer).layer(RequestBodyLimitLayer::new(4));
    assert_eq!(send(&app, with(Script::chunks(["123", "45"]))).await.said(), "413 body-too-large");
    assert!(store.is_empty());
    assert_eq!(runs.count(), 0);
}

// H19
#[tokio::test]
async fn a_body_that_breaks_off_claims_nothing() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let app = runs.app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    for steps in [vec![Step::Fail("reset")], vec![Step::Data("12"), Step::Fail("reset")]] {
        let answer = send(&app, with(Script::new(steps))).await;
        assert_eq!(answer.said(), "400 body-incomplete");
        assert_eq!(answer.header(KEY), Some("k"));
        assert!(!answer.headers.contains_key("retry-after"));
    }
    assert!(store.is_empty());
    assert_eq!(runs.count(), 0);
    assert_eq!(send(&app, with(Script::chunks(["12", "34"]))).await.said(), "201");
}

// H19, H25: the body is read in the request's own future; a client that leaves half-way has claimed nothing.
#[tokio::test]
async fn a_client_that_leaves_while_it_sends_has_claimed_nothing() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = runs.app().layer(layer.clone());
    {
        let mut sending = std::pin::pin!(send(&app, with(Script::new([Step::Data("12"), Step::Hang]))));
        assert!(futures_util::poll!(sending.as_mut()).is_pending());
    }
    assert!(store.is_empty());
    assert_eq!((layer.running(), layer.keys_in_flight()), (0, 0));
    assert_eq!(send(&app, with(Script::chunks(["1234"]))).await.said(), "201");
}
