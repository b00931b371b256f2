//! Stores that are down, slow, or refuse to keep the answer (H23, H33–H35).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use idempotency::fingerprint::{Fingerprint, Profile};
use idempotency::record::{Answer, AnswerBody, Record};
use idempotency::store::{Settled, Verdict};
use idempotency::{ErrorKind, IdempotencyLayer, RetryLater, Scope};
use tokio::sync::Semaphore;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Gate, Runs, post, post_body, send, settle_down};

fn over(store: &Fake) -> IdempotencyLayer<Fake> {
    IdempotencyLayer::new(store.clone(), Scope::shared())
}

// H23, cases C03, K18, O11 and C09
#[tokio::test]
async fn a_failed_claim_never_reaches_the_handler() {
    use ErrorKind::{Conflict, Full, Setup, Unavailable, Unreadable};
    for kind in [Unavailable, Full, Conflict, Setup, Unreadable] {
        let runs = Runs::default();
        let layer = over(&Fake::new().down(kind));
        let app = runs.app().layer(layer.clone());
        for _ in 0..2 {
            let answer = send(&app, post("k")).await;
            assert_eq!(answer.said(), "503 store-unavailable", "{kind:?}");
            assert!(answer.headers.contains_key("retry-after"), "{kind:?}");
        }
        assert_eq!((runs.count(), layer.keys_in_flight()), (0, 0));
    }
}

// H23, case C03: five seconds by default.
#[tokio::test(start_paused = true)]
async fn a_claim_that_takes_too_long_never_reaches_the_handler() {
    for (limit, expected) in [(None, 5), (Some(Duration::from_secs(1)), 1)] {
        let runs = Runs::default();
        let store = Fake::new().on_claim(|_| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            None
        });
        let layer = limit.into_iter().fold(over(&store), IdempotencyLayer::claim_timeout);
        let app = runs.app().layer(layer);
        let start = tokio::time::Instant::now();
        let answer = send(&app, post("k")).await;
        assert_eq!(answer.said(), "503 store-unavailable");
        assert!(answer.headers.contains_key("retry-after"));
        assert_eq!(start.elapsed().as_secs(), expected);
        assert_eq!(runs.count(), 0);
    }
}

// H23, case K18: an explicit choice, counted; each request runs.
#[tokio::test]
async fn running_without_the_store_is_a_choice_and_counted() {
    let counters = Counters::default();
    let _guard = counters.install();
    for (kind, runs_it) in [
        (ErrorKind::Unavailable, true),
        (ErrorKind::Full, true),
        (ErrorKind::Conflict, false),
        (ErrorKind::Setup, false),
        (ErrorKind::Unreadable, false),
    ] {
        let runs = Runs::default();
        let before = counters.of("ran_unprotected");
        let app = runs.app().layer(over(&Fake::new().down(kind)).run_unprotected_without_store());
        for run in 1..=2 {
            let answer = send(&app, post("k")).await;
            if runs_it {
                assert_eq!(answer.text(), format!("run {run}"), "{kind:?}");
                assert!(!answer.is_replay());
            } else {
                assert_eq!(answer.said(), "503 store-unavailable", "{kind:?}");
            }
        }
        assert_eq!(counters.of("ran_unprotected") - before, if runs_it { 2 } else { 0 });
    }
}

// H46: an error is no verdict, also while the one who got it runs unprotected.
#[tokio::test]
async fn nobody_waits_for_an_unprotected_run() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let store = Fake::new().on_claim(|call| async move { (call == 1).then(|| Err(ErrorKind::Unavailable.into())) });
    let app = gate.app(&runs).layer(over(&store).run_unprotected_without_store());
    let unprotected = tokio::spawn({
        let app = app.clone();
        async move { send(&app, post("k")).await }
    });
    gate.entered().await;
    let second = tokio::spawn(async move { send(&app, post("k")).await });
    settle_down().await;
    assert_eq!(store.claims(), 2);
    gate.open(2);
    assert_eq!(unprotected.await.unwrap().said(), "201");
    assert_eq!(second.await.unwrap().said(), "201");
}

// H33, case T03: the table of refusals at settle; the client never sees the handler's answer.
#[tokio::test]
async fn an_answer_that_a_transactional_store_cannot_keep_is_not_given() {
    for (kind, said, waits) in [
        (ErrorKind::CommitRefused, "500 commit-refused", false),
        (ErrorKind::TransactionAborted, "500 transaction-aborted", false),
        (ErrorKind::TransactionEnded, "500 transaction-ended", false),
        (ErrorKind::HeldTransaction, "500 held-transaction", false),
        (ErrorKind::NotRecorded, "503 not-recorded", true),
        (ErrorKind::Unavailable, "503 store-unavailable", true),
        (ErrorKind::Conflict, "503 store-unavailable", true),
        (ErrorKind::LeaseLost, "409 lease-lost", true),
    ] {
        let (runs, store) = (Runs::default(), Fake::new().unsettled(kind));
        let answer = send(&runs.app().layer(over(&store)), post("k")).await;
        assert_eq!(answer.said(), said, "{kind:?}");
        assert_eq!(answer.headers.contains_key("retry-after"), waits, "{kind:?}");
        assert!(!answer.text().contains("run 1"));
        assert_eq!((runs.count(), store.settlements()), (1, vec!["commit"]));
    }
}

// H35, cases L22 and D08: on a lease the work is done. The client gets its answer, counted; the key stays held.
#[tokio::test]
async fn an_answer_that_a_lease_store_cannot_keep_is_given() {
    use ErrorKind::{CommitRefused, Conflict, NotRecorded, Setup, Unavailable};
    let counters = Counters::default();
    let _guard = counters.install();
    for (number, kind) in [Unavailable, NotRecorded, Conflict, CommitRefused, Setup].into_iter().enumerate() {
        let (runs, store) = (Runs::default(), Fake::new().lease().unsettled(kind));
        let app = runs.app().layer(over(&store));
        let answer = send(&app, post("k")).await;
        assert_eq!((answer.said().as_str(), answer.text()), ("201", "run 1"), "{kind:?}");
        assert_eq!(counters.of("unsaved"), number as u64 + 1);
        assert_eq!(send(&app, post("k")).await.said(), "409 in-progress");
        assert_eq!(runs.count(), 1);
    }
}

// H35, case L12
#[tokio::test]
async fn an_answer_whose_lease_was_lost_is_not_given() {
    let (runs, store) = (Runs::default(), Fake::new().lease().unsettled(ErrorKind::LeaseLost));
    let answer = send(&runs.app().layer(over(&store)), post("k")).await;
    assert_eq!(answer.said(), "409 lease-lost");
    assert!(answer.headers.contains_key("retry-after"));
}

// Case C08: somebody else's verdict stands.
#[tokio::test]
async fn a_superseded_settlement_gives_the_verdict_that_stands() {
    fn record(body: AnswerBody) -> Record {
        let answer = Answer { status: StatusCode::ACCEPTED, headers: HeaderMap::new(), body, trailers: None };
        Record { fingerprint: Fingerprint::new(Profile::from_bytes([0; 8]), [0; 32]), answer }
    }
    let check = async |verdict: fn() -> Verdict<std::convert::Infallible>| {
        let store = Fake::new().on_settle(move |_| async move { Some(Ok(Settled::Superseded(verdict()))) });
        send(&Runs::default().app().layer(over(&store)), post("k")).await
    };
    let replay = check(|| Verdict::Replay(record(AnswerBody::Kept(Bytes::from_static(b"theirs"))))).await;
    assert_eq!((replay.said().as_str(), replay.text(), replay.is_replay()), ("202", "theirs", true));
    assert_eq!(check(|| Verdict::Replay(record(AnswerBody::NotKept))).await.said(), "410 answer-not-kept");
    assert_eq!(check(|| Verdict::InProgress { retry_after: None }).await.said(), "409 in-progress");
    assert_eq!(check(|| Verdict::Mismatch).await.said(), "422 key-reused");
    let orphaned = check(|| Verdict::Orphaned).await;
    assert_eq!((orphaned.said().as_str(), orphaned.headers.contains_key("retry-after")), ("409 orphaned", false));
}

// H29: kept past the handler.
#[tokio::test]
async fn a_transaction_that_is_not_given_back_is_refused() {
    let store = Fake::new().held(ErrorKind::HeldTransaction);
    let answer = send(&Runs::default().app().layer(over(&store)), post("k")).await;
    assert_eq!(answer.said(), "500 held-transaction");
    assert_eq!(store.settlements(), ["drop"]);
}

// H33, case T03: not a byte before the settlement.
#[tokio::test]
async fn the_answer_leaves_after_the_settlement() {
    let go = Arc::new(Semaphore::new(0));
    let store = Fake::new().on_settle({
        let go = Arc::clone(&go);
        move |_| {
            let go = Arc::clone(&go);
            async move {
                go.acquire().await.unwrap().forget();
                None
            }
        }
    });
    for handler in ["whole", "stream"] {
        let app = Router::new().fallback(async move || {
            let streaming = (handler == "stream").then(|| idempotency::Outcome::commit().streaming());
            (streaming.map(axum::Extension), "answer").into_response()
        });
        let answering = tokio::spawn(app.layer(over(&store)).oneshot(post(handler)));
        settle_down().await;
        assert!(!answering.is_finished(), "{handler}");
        go.add_permits(1);
        assert_eq!(answering.await.unwrap().unwrap().status(), 200);
    }
}

// The layer makes no service error of its own (H45), and abandons for the service's.
#[tokio::test]
async fn a_service_error_frees_the_key_and_reaches_the_caller() {
    let store = Fake::new();
    let service = ServiceBuilder::new().layer(over(&store)).service(service_fn(async |_: Request<_>| {
        Err::<http::Response<Body>, _>(std::io::Error::other("the service's own"))
    }));
    for _ in 0..2 {
        assert_eq!(service.clone().oneshot(post("k")).await.unwrap_err().to_string(), "the service's own");
    }
    assert_eq!(store.settlements(), ["abandon", "abandon"]);
}

// H34: not again by itself; where it is asked for, up to so often, with the whole request each time.
#[tokio::test]
async fn a_conflict_is_run_again_only_where_that_is_asked_for() {
    for (reruns, said, runs_expected) in
        [(0, "503 store-unavailable", 1), (1, "503 store-unavailable", 2), (5, "201", 3)]
    {
        let runs = Runs::default();
        let store = Fake::new().on_settle(|call| async move { (call < 3).then(|| Err(ErrorKind::Conflict.into())) });
        let handler = runs.clone();
        let app = Router::new().fallback(async move |body: String| {
            handler.next();
            assert_eq!(body, "whole");
            StatusCode::CREATED
        });
        let answer = send(&app.layer(over(&store).rerun_on_conflict(reruns)), post_body("k", "whole")).await;
        assert_eq!((answer.said().as_str(), runs.count()), (said, runs_expected), "{reruns}");
    }
}

// H34: the handler's own statements.
#[tokio::test]
async fn retry_later_is_503_with_nothing_kept_and_counts_as_a_conflict() {
    for (reruns, said, runs_expected) in [(0, "503 store-unavailable", 1), (1, "201", 2)] {
        let (runs, store) = (Runs::default(), Fake::new());
        let handler = runs.clone();
        let app = Router::new().fallback(async move || match handler.next() {
            1 => RetryLater.into_response(),
            _ => StatusCode::CREATED.into_response(),
        });
        let app = app.layer(over(&store).rerun_on_conflict(reruns));
        let answer = send(&app, post("k")).await;
        assert_eq!((answer.said().as_str(), runs.count()), (said, runs_expected));
        assert_eq!(store.settlements()[0], "abandon");
        if reruns == 0 {
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert_eq!(send(&app, post("k")).await.said(), "201");
        }
    }
}
