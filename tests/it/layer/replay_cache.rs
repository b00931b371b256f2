//! Answers that are replayed without the store (S27).

use std::time::Duration;

use idempotency::{IdempotencyLayer, Outcome, Scope};

use crate::support::fake::Fake;
use crate::support::http::{Runs, post, post_body, request, send};

fn layer(store: &Fake) -> IdempotencyLayer<Fake> {
    IdempotencyLayer::new(store.clone(), Scope::shared()).replay_cache(1 << 20)
}

// S27: after the store's commit, and only then; the same bytes and marks as from the store.
#[tokio::test]
async fn a_replay_asks_no_store() {
    let store = Fake::new();
    let app = Runs::default().app().layer(layer(&store));
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    for _ in 0..3 {
        let again = send(&app, post("k")).await;
        assert!(again.is_replay());
        assert_eq!((again.text(), again.header("idempotency-key")), ("run 1", Some("k")));
    }
    assert_eq!(store.claims(), 1);
}

// S27: off by default.
#[tokio::test]
async fn without_it_every_replay_asks() {
    let store = Fake::new();
    let app = Runs::default().app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    for _ in 0..3 {
        assert_eq!(send(&app, post("k")).await.text(), "run 1");
    }
    assert_eq!(store.claims(), 3);
}

// S27, S1, case F11: compared each time, not once.
#[tokio::test]
async fn another_request_is_a_mismatch_every_time() {
    let store = Fake::new();
    let app = Runs::default().app().layer(layer(&store));
    send(&app, post("k")).await;
    for _ in 0..2 {
        assert_eq!(send(&app, post_body("k", "other")).await.said(), "422 key-reused");
    }
    assert_eq!(store.claims(), 1);
    assert!(send(&app, post("k")).await.is_replay(), "the mismatch has changed nothing");
}

// S27: what nobody has stored is not kept here either.
#[tokio::test]
async fn only_what_the_store_has_kept_is_kept() {
    let store = Fake::new();
    let runs = Runs::default();
    let handler = runs.clone();
    let app = axum::Router::new().fallback(async move || {
        handler.next();
        (Outcome::abandon(), "not kept")
    });
    let app = app.layer(layer(&store));
    for _ in 0..2 {
        assert!(!send(&app, post("k")).await.is_replay());
    }
    assert_eq!((runs.count(), store.claims()), (2, 2));
    let store = Fake::new().unsettled(idempotency::ErrorKind::NotRecorded);
    let app = Runs::default().app().layer(layer(&store));
    for _ in 0..2 {
        assert_eq!(send(&app, post("k")).await.said(), "503 not-recorded");
    }
    assert_eq!(store.claims(), 2);
}

// S27, H40: an answer that was not kept is told as such, from here as from the store.
#[tokio::test]
async fn an_unkept_answer_is_told_as_such() {
    let store = Fake::new();
    let app = axum::Router::new().fallback(async || (Outcome::commit().without_body(), "secret")).layer(layer(&store));
    assert_eq!(send(&app, post("k")).await.text(), "secret");
    assert_eq!(send(&app, post("k")).await.said(), "410 answer-not-kept");
    assert_eq!(store.claims(), 1);
}

// S27, H44
#[tokio::test(start_paused = true)]
async fn after_half_a_minute_the_store_is_asked() {
    let store = Fake::new();
    let app = Runs::default().app().layer(layer(&store));
    send(&app, post("k")).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(send(&app, post("k")).await.is_replay());
    assert_eq!(store.claims(), 2);
}

// S27, H11: another endpoint is another operation.
#[tokio::test]
async fn it_is_looked_up_by_the_whole_key() {
    let store = Fake::new();
    let app = Runs::default().app().layer(layer(&store));
    send(&app, post("k")).await;
    let other = request(http::Method::POST, "/other", Some("k"), "{}");
    assert_eq!(send(&app, other).await.text(), "run 2");
    assert_eq!(store.claims(), 2);
}
