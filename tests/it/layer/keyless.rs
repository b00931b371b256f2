//! Guarded requests without a key, over a store that lends them a transaction (H2).

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use http::{Method, Request, StatusCode};
use idempotency::{Attempt, ErrorKind, IdempotencyLayer, Outcome, Scope};

use crate::support::bodies::{Script, Step};
use crate::support::fake::{Fake, LentTransaction};
use crate::support::http::{Answered, Gate, Runs, post, request, send};

fn over(store: &Fake) -> IdempotencyLayer<Fake> {
    IdempotencyLayer::new(store.clone(), Scope::shared())
}

async fn without_key(app: &Router) -> Answered {
    send(app, request(Method::POST, "/", None, "{}")).await
}

// H2, H31: kept on 2xx and 3xx, undone otherwise, and done with before the answer is given.
#[tokio::test]
async fn writes_without_a_key_are_kept_with_a_success_only() {
    for (status, end) in [(200, "keep"), (204, "keep"), (303, "keep"), (400, "undo"), (409, "undo"), (500, "undo")] {
        let store = Fake::new().lending(None);
        let app = Router::new().fallback(async move |request: Request<Body>| {
            assert!(request.extensions().get::<LentTransaction>().is_some());
            StatusCode::from_u16(status).unwrap()
        });
        assert_eq!(without_key(&app.layer(over(&store))).await.status, status);
        assert_eq!((store.settlements(), store.claims()), (vec![end], 0), "{status}");
    }
}

// H2, H32: the handler's word counts here, too.
#[tokio::test]
async fn a_handlers_word_decides_without_a_key_too() {
    for (status, outcome, end) in [(201, Outcome::abandon(), "undo"), (404, Outcome::commit(), "keep")] {
        let store = Fake::new().lending(None);
        let app = Router::new().fallback(async move || (StatusCode::from_u16(status).unwrap(), outcome, "body"));
        assert_eq!(without_key(&app.layer(over(&store))).await.status, status);
        assert_eq!(store.settlements(), [end]);
    }
}

// H2: an answer is not given where its writes were not kept.
#[tokio::test]
async fn a_refused_commit_without_a_key_is_told() {
    for (kind, said) in [
        (ErrorKind::CommitRefused, "500 commit-refused"),
        (ErrorKind::TransactionAborted, "500 transaction-aborted"),
        (ErrorKind::HeldTransaction, "500 held-transaction"),
        (ErrorKind::Conflict, "503 store-unavailable"),
    ] {
        let store = Fake::new().lending(Some(kind));
        let answer = without_key(&Runs::default().app().layer(over(&store))).await;
        assert_eq!(answer.said(), said);
        assert!(!answer.headers.contains_key("idempotency-key"));
    }
}

// H2: in place. A client that leaves, or a panic, rolls back.
#[tokio::test]
async fn a_request_without_a_key_is_rolled_back_when_it_is_dropped() {
    let (store, gate) = (Fake::new().lending(None), Gate::new());
    let layer = over(&store);
    let app = gate.app(&Runs::default()).layer(layer.clone());
    {
        let mut leaving = std::pin::pin!(without_key(&app));
        assert!(futures_util::poll!(leaving.as_mut()).is_pending());
        gate.entered().await;
        assert_eq!((layer.running(), layer.keys_in_flight()), (0, 0));
    }
    assert_eq!(store.settlements(), ["drop"]);
    let app = Router::new().fallback(async || -> &str { panic!("without a key") }).layer(layer);
    AssertUnwindSafe(without_key(&app)).catch_unwind().await.unwrap_err();
    assert_eq!(store.settlements(), ["drop", "drop"]);
}

// H2: the body of the answer is not buffered.
#[tokio::test]
async fn an_answer_without_a_key_is_sent_as_it_comes() {
    let store = Fake::new().lending(None);
    let app = Router::new().fallback(async || Body::new(Script::new([Step::Data("a"), Step::Fail("later")])));
    let answer = without_key(&app.layer(over(&store))).await;
    assert_eq!((answer.text(), answer.broken.is_some()), ("a", true));
    assert_eq!(store.settlements(), ["keep"], "committed before the first byte");
}

// H2: with a key, or where the request is not guarded, nothing of this is lent.
#[tokio::test]
async fn a_transaction_without_a_key_is_lent_to_nobody_else() {
    let store = Fake::new().lending(None);
    let app = Router::new().fallback(async |request: Request<Body>| {
        assert!(request.extensions().get::<LentTransaction>().is_none());
    });
    let app = app.layer(over(&store));
    assert_eq!(send(&app, post("k")).await.said(), "200");
    assert_eq!(send(&app, request(Method::PUT, "/", None, "")).await.said(), "200");
    assert_eq!(store.settlements(), ["commit"]);
}

// H23, H28: a run without protection has what its handler takes, but for the protection.
#[tokio::test]
async fn an_unprotected_run_is_lent_a_plain_transaction_and_has_an_attempt() {
    let store = Fake::new().lending(None).down(ErrorKind::Unavailable);
    let app = Router::new().fallback(async |attempt: Attempt, request: Request<Body>| {
        assert!(request.extensions().get::<LentTransaction>().is_some());
        assert_eq!(attempt.fence(), None);
    });
    let app = app.layer(over(&store).run_unprotected_without_store());
    assert_eq!(send(&app, post("k")).await.said(), "200");
    assert_eq!(store.settlements(), ["keep"]);
}
