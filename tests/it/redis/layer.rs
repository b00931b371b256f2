//! The layer over a Redis store.

use std::time::Duration;

use axum::Router;
use idempotency::store::{OnUnknown, RedisStore};
use idempotency::{Attempt, IdempotencyLayer, Scope};
use tokio::task::JoinSet;

use crate::support::counters::Counters;
use crate::support::http::{Runs, post, post_body, send};
use crate::support::redis::{Admin, calm, cluster, prefix, record, single, url};

fn layered(app: Router, store: &RedisStore) -> Router {
    app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()))
}

// Case L14: the lease is renewed while the handler works, and every process is told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_five_leases_runs_once() {
    let _calm = calm().await;
    let prefix = prefix();
    let store = || single(&prefix).lease(Duration::from_millis(600)).build().unwrap();
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move || {
        handler.next();
        tokio::time::sleep(Duration::from_millis(3000)).await;
        "done"
    });
    // Two processes share nothing but the server.
    let (here, there) = (layered(app.clone(), &store()), layered(app, &store()));
    let first = tokio::spawn(async move { send(&here, post("k")).await.text().to_owned() });
    tokio::time::sleep(Duration::from_millis(200)).await;
    while !first.is_finished() {
        let told = send(&there, post("k")).await;
        assert!(["409 in-progress", "200"].contains(&told.said().as_str()), "{}", told.said());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(first.await.unwrap(), "done");
    assert!(send(&there, post("k")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

// Cases C01, C02, C10
#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_identical_requests_one_runs() {
    let _calm = calm().await;
    let prefix = prefix();
    for build in [single, cluster] {
        let runs = Runs::default();
        let app = runs.app();
        // A layer each: no table of a process helps.
        let mut crowd = JoinSet::new();
        for _ in 0..50 {
            let app = layered(app.clone(), &build(&prefix).build().unwrap());
            crowd.spawn(async move { send(&app, post("k")).await });
        }
        for answered in crowd.join_all().await {
            let told = answered.said();
            assert!(told == "201" && answered.text() == "run 1" || told == "409 in-progress", "{told}");
        }
        assert_eq!(runs.count(), 1);
    }
}

// Case L01, S21: a process that is gone holds its key for a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_attempt_is_followed_by_the_next_one() {
    let _calm = calm().await;
    let prefix = prefix();
    let store = || single(&prefix).lease(Duration::from_millis(500)).build().unwrap();
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move |attempt: Attempt| {
        if handler.next() == 1 {
            std::future::pending::<()>().await;
        }
        format!("attempt {}", attempt.number())
    });
    // The crash: a runtime that ends with its tasks.
    let first = layered(app.clone(), &store());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _ =
            runtime.block_on(async { tokio::time::timeout(Duration::from_millis(300), send(&first, post("k"))).await });
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    let app = layered(app, &store());
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress");
    assert_eq!(send(&app, post_body("k", "other")).await.said(), "422 key-reused");
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(send(&app, post("k")).await.text(), "attempt 2");
}

// S22, case L03: held until somebody has looked; `Rerun` runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_a_call_out_is_held_or_run_again() {
    let _calm = calm().await;
    for (on_unknown, told, ran) in [(OnUnknown::HoldDispatched, "409 outcome-unknown", 1), (OnUnknown::Rerun, "502", 2)]
    {
        let runs = Runs::default();
        let handler = runs.clone();
        let app = Router::new().fallback(async move |attempt: Attempt| {
            handler.next();
            attempt.dispatching().await.unwrap();
            http::StatusCode::BAD_GATEWAY
        });
        let app = layered(app, &single(&prefix()).on_unknown(on_unknown).build().unwrap());
        assert_eq!(send(&app, post("k")).await.said(), "502");
        assert_eq!(send(&app, post("k")).await.said(), told);
        assert_eq!(runs.count(), ran, "{on_unknown:?}");
    }
}

// S20, H35: an owner that has lost its key is told, and what it did is not recorded over the next one's answer.
#[tokio::test]
async fn a_lease_that_is_lost_is_counted_and_its_answer_not_recorded() {
    let _calm = calm().await;
    let counters = Counters::default();
    let _guard = counters.install();
    let prefix = prefix();
    let store = single(&prefix).lease(Duration::from_millis(300)).build().unwrap();
    let mut admin = Admin::single(&url()).await;
    let app = Router::new().fallback(async || {
        tokio::time::sleep(Duration::from_millis(600)).await;
        "the zombie's"
    });
    let app = layered(app, &store);
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, post("k")).await.said() }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let name = admin.names(&prefix).await.pop().unwrap();
    assert!(record(&prefix, idempotency::testing::store::request("k", 1).lookup()) != name, "the layer's own scope");
    admin.hset(&name, "t", "somebody else's!").await;
    assert_eq!(first.await.unwrap(), "409 lease-lost");
    assert_eq!(counters.of("lease_lost"), 1);
    assert_eq!(admin.hget(&name, "s").await.as_deref(), Some("r"), "the next owner's record is as it was");
}
