//! Short cut or store, first time or again: each way of asking comes to the same verdict, and asks once (S1, S4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::Method;
use idempotency::fingerprint::Fingerprinter;
use idempotency::run::{Finish, Operation, Ran, RunOnce};
use idempotency::store::{Settled, Verdict};
use idempotency::{ErrorKind, IdempotencyLayer, Key, MemoryStore, Scope, ScopeId};

use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Gate, Runs, layer, post, post_body, request, send};

/// What a request is told, in the words of a verdict.
fn verdict(said: &str) -> &'static str {
    match said {
        "200" | "201" => "replay",
        "409 in-progress" => "in progress",
        "422 key-reused" => "mismatch",
        other => panic!("{other}"),
    }
}

// S1, cases R21 and C31: the table of a process, the store that another process asks, and a caller without HTTP all
// tell the same of one key, running and done.
#[tokio::test]
async fn every_path_comes_to_the_same_verdict() {
    let (runs, gate, store) = (Runs::default(), Gate::new(), MemoryStore::new());
    let over = || IdempotencyLayer::new(store.clone(), Scope::shared());
    let here = gate.app(&runs).layer(over());
    let there = || gate.app(&runs).layer(over());
    let first = tokio::spawn({
        let here = here.clone();
        async move { send(&here, post("k")).await }
    });
    gate.entered().await;
    let ask = async |app: &Router, body| verdict(&send(app, post_body("k", body)).await.said());
    for (body, expected) in [("{}", "in progress"), ("[]", "mismatch")] {
        assert_eq!(ask(&here, body).await, expected, "by the table");
        assert_eq!(ask(&there(), body).await, expected, "by the store");
    }
    gate.open(1);
    assert_eq!(first.await.unwrap().said(), "201");
    for (body, expected) in [("{}", "replay"), ("[]", "mismatch")] {
        assert_eq!(ask(&here, body).await, expected);
        assert_eq!(ask(&there(), body).await, expected);
    }

    let operation = |input: &[u8]| Operation::new("job", ScopeId::shared(), Key::new("k").unwrap(), input);
    let told = async |input: &[u8]| {
        let asked = operation(input);
        match store.run(&asked, async |_| Ok::<_, ()>(Finish::Abandon(Bytes::new()))).await.unwrap() {
            Ran::Replayed(_) => "replay",
            Ran::InProgress { .. } => "in progress",
            Ran::Mismatch => "mismatch",
            other => panic!("{other:?}"),
        }
    };
    let asked = operation(b"{}");
    let running = store.run(&asked, async |_| {
        assert_eq!((told(b"{}").await, told(b"[]").await), ("in progress", "mismatch"));
        Ok::<_, ()>(Finish::Commit(Bytes::from_static(b"done")))
    });
    assert!(matches!(running.await.unwrap(), Ran::Executed(_)));
    assert_eq!((told(b"{}").await, told(b"[]").await), ("replay", "mismatch"));
}

// S1, H46: those who waited for somebody else's question conclude from its verdict what the store would have told them.
#[tokio::test]
async fn a_shared_verdict_is_judged_as_the_store_would() {
    let store = Fake::new().on_claim(|_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        None
    });
    let runs = Runs::default();
    let app = || runs.app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    assert_eq!(send(&app(), post("k")).await.said(), "201");
    let (asked, shared) = (store.claims(), app());
    let bodies = ["{}", "{}", "[]", "{}", "[]"];
    let told = futures_util::future::join_all(bodies.map(|body| send(&shared, post_body("k", body)))).await;
    for (answer, body) in told.iter().zip(bodies) {
        assert_eq!(verdict(&answer.said()), if body == "{}" { "replay" } else { "mismatch" });
    }
    assert!(store.claims() - asked < bodies.len(), "nobody shared a verdict");
}

// S4: however often a request asks, waits or runs, its fingerprint is computed once.
#[tokio::test(start_paused = true)]
async fn a_fingerprint_is_computed_once_a_request() {
    let computed = Arc::new(AtomicUsize::new(0));
    let counting = |version| {
        let computed = Arc::clone(&computed);
        Fingerprinter::custom(version, move |_| {
            computed.fetch_add(1, Ordering::SeqCst);
            vec![1]
        })
    };
    // Settled at the third run; asked again and again while another process runs it.
    let store = Fake::new()
        .on_claim(|call| async move { (call <= 5).then_some(Ok(Verdict::InProgress { retry_after: None })) })
        .on_settle(|call| async move { (call <= 2).then(|| Err::<Settled, _>(ErrorKind::Conflict.into())) });
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared())
        .wait_up_to(Duration::from_secs(60))
        .rerun_on_conflict(2)
        .fingerprint(counting(1))
        .previous_fingerprint(counting(2));
    let runs = Runs::default();
    let app = runs.app().layer(layer);
    assert_eq!(send(&app, post("k")).await.text(), "run 3");
    assert_eq!((store.claims(), computed.load(Ordering::SeqCst)), (8, 2), "one for each setting");
    assert!(send(&app, post("k")).await.is_replay());
    assert_eq!(computed.load(Ordering::SeqCst), 4);
}

// Case F19: one body under two keys is two operations; nothing is deduplicated across keys.
#[tokio::test]
async fn the_same_body_under_two_keys_runs_twice() {
    let runs = Runs::default();
    let app = runs.app().layer(layer());
    for (key, text) in [("a", "run 1"), ("b", "run 2"), ("a", "run 1"), ("b", "run 2")] {
        assert_eq!(send(&app, post_body(key, "10 EUR")).await.text(), text);
    }
    assert_eq!(runs.count(), 2);
}

// Case O08: a static key that swallows what was meant to be done again shows in the counters.
#[tokio::test]
async fn every_request_that_does_not_run_is_counted() {
    let counters = Counters::default();
    let _guard = counters.install();
    let runs = Runs::default();
    let app = runs.app().layer(layer());
    for number in 0..10 {
        let answer = send(&app, post("static")).await;
        assert_eq!(answer.is_replay(), number > 0);
    }
    assert_eq!((counters.of("executed"), counters.of("replayed"), runs.count()), (1, 9, 1));
    send(&app, post_body("static", "[]")).await;
    assert_eq!(counters.of("key-reused"), 1);
}

// Case O14: what a duplicate of a running request does, and one of a request that is done: all four.
#[tokio::test(start_paused = true)]
async fn a_duplicate_is_refused_or_waits_and_is_always_replayed_afterwards() {
    for wait in [None, Some(Duration::from_secs(60))] {
        let (runs, gate) = (Runs::default(), Gate::new());
        let layer = wait.into_iter().fold(layer(), IdempotencyLayer::wait_up_to);
        let app = gate.app(&runs).layer(layer);
        let start = || {
            let app = app.clone();
            tokio::spawn(async move { send(&app, post("k")).await })
        };
        let first = start();
        gate.entered().await;
        let second = start();
        crate::support::http::settle_down().await;
        assert_eq!(second.is_finished(), wait.is_none());
        gate.open(1);
        assert_eq!(first.await.unwrap().said(), "201");
        let second = second.await.unwrap();
        assert_eq!(
            (second.said().as_str(), second.is_replay()),
            match wait {
                None => ("409 in-progress", false),
                Some(_) => ("201", true),
            }
        );
        let third = send(&app, post("k")).await;
        assert_eq!((third.text(), third.is_replay(), runs.count()), ("run 1", true, 1));
    }
}

// Case O16: nobody finishes an operation behind the client's back: what was dropped runs when it is asked for again.
#[tokio::test(start_paused = true)]
async fn an_operation_that_was_cut_off_waits_for_its_client() {
    let (runs, gate, store) = (Runs::default(), Gate::new(), Fake::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).cancel_on_disconnect();
    let app = gate.app(&runs).layer(layer.clone());
    tokio::select! {
        _ = send(&app, post("k")) => panic!("the gate is closed"),
        () = gate.entered() => {}
    }
    gate.open(1);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((runs.count(), layer.keys_in_flight(), store.settlements()), (1, 0, vec!["drop"]));
    let retry = send(&app, post("k")).await;
    assert_eq!((retry.text(), retry.is_replay(), runs.count()), ("run 2", false, 2));
}

// Case K13: a scope is what the service says; no address enters it by itself.
#[tokio::test]
async fn callers_behind_one_address_are_told_apart_by_who_they_are() {
    #[derive(Clone)]
    struct Principal(&'static str);
    let runs = Runs::default();
    let scope = Scope::from_extension(|principal: &Principal| Some(principal.0));
    let app = runs.app().layer(IdempotencyLayer::new(MemoryStore::new(), scope));
    let from = async |address: [u8; 4], principal| {
        let mut request = request(Method::POST, "/", Some("k"), "{}");
        let address = std::net::SocketAddr::from((address, 4000));
        request.extensions_mut().insert(axum::extract::ConnectInfo(address));
        request.headers_mut().insert("x-forwarded-for", address.ip().to_string().parse().unwrap());
        request.extensions_mut().insert(Principal(principal));
        send(&app, request).await.text().to_owned()
    };
    assert_eq!(from([192, 0, 2, 1], "alice").await, "run 1");
    assert_eq!(from([192, 0, 2, 1], "bob").await, "run 2", "one address, two callers");
    assert_eq!(from([192, 0, 2, 9], "alice").await, "run 1", "one caller, two addresses");
}
