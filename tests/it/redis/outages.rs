//! Servers that are down, silent, or have forgotten everything: nothing runs unguarded, nothing waits for long.

use std::time::{Duration, Instant};

use axum::Router;
use idempotency::store::{Claim, Kept, RedisStore, RedisStoreBuilder, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, IdempotencyLayer, Scope};

use crate::support::http::{Gate, Runs, post, send};
use crate::support::redis::{Admin, alone, control, disturb, kind, prefix, single, url};

/// Claims that are bounded well below what a test waits for.
fn quick() -> RedisStoreBuilder {
    single(&prefix()).response_timeout(Duration::from_millis(300)).connect_timeout(Duration::from_millis(300))
}

fn service(store: &RedisStore) -> (Router, Runs) {
    let runs = Runs::default();
    (runs.app().layer(IdempotencyLayer::new(store.clone(), Scope::shared())), runs)
}

/// Sends until the key is free: a call that was given up may have claimed it.
async fn soon(app: &Router, key: &str) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let told = send(app, post(key)).await;
        if told.status.is_success() || Instant::now() > until {
            return told.said();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// Case O11: the service starts, refuses, and recovers by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_at_the_start_is_found_later() {
    let _alone = alone().await;
    let down = disturb("kill", "single");
    let store = quick().build().unwrap();
    assert_eq!(kind(store.check().await), ErrorKind::Unavailable);
    let (app, runs) = service(&store);
    let start = Instant::now();
    assert_eq!(send(&app, post("k")).await.said(), "503 store-unavailable");
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(runs.count(), 0, "the handler ran without a claim");
    down.end();
    assert_eq!(soon(&app, "k").await, "201");
    store.check().await.unwrap();
    assert!(send(&app, post("k")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

// H23: a server that says nothing. Each way ends within the bound, and the handler has not run.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_no_claim() {
    let _alone = alone().await;
    let store = quick().build().unwrap();
    completed(&store, &request("warm", 1), answer("warm")).await;
    let (app, runs) = service(&store);
    let paused = disturb("pause", "single");
    for key in ["one", "two"] {
        let start = Instant::now();
        assert_eq!(send(&app, post(key)).await.said(), "503 store-unavailable");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    assert_eq!(runs.count(), 0);
    paused.end();
    assert_eq!(soon(&app, "one").await, "201");
    // The same by the server's own command.
    let mut admin = Admin::single(&url()).await;
    admin.command::<()>(&["CLIENT", "PAUSE", "1500", "ALL"]).await;
    let start = Instant::now();
    assert_eq!(send(&app, post("three")).await.said(), "503 store-unavailable");
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(runs.count(), 1);
    assert_eq!(soon(&app, "three").await, "201");
}

// A crowd does not knock one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_before_a_silent_server_is_refused_together() {
    let _alone = alone().await;
    let paused = disturb("pause", "single");
    let store = quick().build().unwrap();
    let start = Instant::now();
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..50 {
        let store = store.clone();
        crowd.spawn(async move { kind(store.claim(&request(&format!("{number}"), 1)).await) });
    }
    assert!(crowd.join_all().await.into_iter().all(|kind| kind == ErrorKind::Unavailable));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    paused.end();
}

// S25: what a server without its append-only file cannot promise, as documented.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_persistence_forgets_keys_and_tells_owners() {
    let _alone = alone().await;
    let store = quick().build().unwrap();
    completed(&store, &request("done", 1), answer("first")).await;
    let claim = async |key: &str| match store.claim(&request(key, 1)).await {
        Ok(Verdict::Claimed(claim)) => claim,
        _ => panic!("{key} is not free"),
    };
    let (mut running, abandoned) = (claim("running").await, claim("abandoned").await);
    let gate = Gate::new();
    let runs = Runs::default();
    let app = gate.app(&runs).layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let behind = tokio::spawn({
        let app = app.clone();
        async move { send(&app, post("k")).await.said() }
    });
    gate.entered().await;
    control("restart", "single");
    // Forgotten: the operation would run again.
    let again = claim("done").await;
    again.settle(Settlement::Abandon).await.unwrap();
    // Its owner records nothing under a key that may be another's by now.
    assert_eq!(kind(running.renew().await), ErrorKind::LeaseLost);
    assert_eq!(kind(running.control().unwrap().dispatching().await), ErrorKind::LeaseLost);
    let kept = Kept { answer: answer("late"), retention: Duration::from_secs(60) };
    assert_eq!(kind(running.settle(Settlement::Commit(kept)).await), ErrorKind::LeaseLost);
    assert_eq!(kind(abandoned.settle(Settlement::Abandon).await), ErrorKind::LeaseLost);
    gate.open(1);
    assert_eq!(behind.await.unwrap(), "409 lease-lost");
}

// Case L22, H35: an answer that cannot be recorded is given all the same, and recorded when the server is back.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_recorded_when_the_server_speaks_again() {
    let _alone = alone().await;
    let store = quick().lease(Duration::from_secs(30)).build().unwrap();
    let (gate, runs) = (Gate::new(), Runs::default());
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let app = gate.app(&runs).layer(layer.clone());
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, post("k")).await }
    });
    gate.entered().await;
    let paused = disturb("pause", "single");
    gate.open(1);
    assert_eq!(first.await.unwrap().text(), "run 1");
    paused.end();
    layer.drain().await;
    let again = send(&app, post("k")).await;
    assert!(again.is_replay() && again.text() == "run 1");
    assert_eq!(runs.count(), 1);
}
