//! What an answer means for its operation (H31, H32).

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use idempotency::policy::Policy;
use idempotency::{IdempotencyLayer, Outcome, Scope};

use crate::support::fake::Fake;
use crate::support::http::{Runs, layer, post, post_body, request, send};

// H31, H32, cases R14, R15 and L07: status × outcome × stored × key free.
#[tokio::test]
async fn every_status_has_its_outcome() {
    for (decision, statuses) in [
        ("commit", vec![200, 201, 202, 204, 206, 301, 302, 303, 304, 307]),
        ("refuse", vec![402, 409, 410]),
        ("abandon", vec![400, 401, 403, 404, 405, 406, 408, 411, 412, 413, 415, 418, 422, 423, 425, 429, 451]),
        ("abandon", vec![500, 501, 502, 503, 504, 599]),
    ] {
        for status in statuses {
            let (runs, store) = (Runs::default(), Fake::new());
            let handler = runs.clone();
            let app = Router::new().fallback(async move || {
                handler.next();
                StatusCode::from_u16(status).unwrap()
            });
            let app = app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
            assert_eq!(send(&app, post("k")).await.status, status);
            assert_eq!(store.settlements(), [decision], "{status}");
            let stored = decision != "abandon";
            let again = send(&app, post("k")).await;
            assert_eq!((again.status.as_u16(), again.is_replay()), (status, stored), "{status}");
            assert_eq!(runs.count(), if stored { 1 } else { 2 }, "{status}");
            // Case R16: a free key takes another body, a kept one does not.
            let other = send(&app, post_body("k", "[]")).await;
            assert_eq!(other.status.as_u16(), if stored { 422 } else { status });
            assert_eq!(runs.count(), if stored { 1 } else { 3 }, "{status}");
        }
    }
}

// H31: without a key nothing is stored, whatever the outcome.
#[tokio::test]
async fn an_answer_without_a_key_is_not_stored() {
    for status in [201, 409, 500] {
        let (runs, store) = (Runs::default(), Fake::new());
        let handler = runs.clone();
        let app = Router::new().fallback(async move || {
            handler.next();
            StatusCode::from_u16(status).unwrap()
        });
        let app = app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
        for _ in 0..2 {
            assert_eq!(send(&app, request(http::Method::POST, "/", None, "")).await.status, status);
        }
        assert_eq!((runs.count(), store.claims()), (2, 0));
    }
}

// H32, case R16
#[tokio::test]
async fn a_corrected_body_runs_under_the_same_key() {
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move |body: String| {
        handler.next();
        if body == "wrong" { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::CREATED }
    });
    let app = app.layer(layer());
    assert_eq!(send(&app, post_body("k", "wrong")).await.said(), "422");
    assert_eq!(send(&app, post_body("k", "right")).await.said(), "201");
    assert!(send(&app, post_body("k", "right")).await.is_replay());
    assert_eq!(runs.count(), 2);
}

async fn by_word(request: Request) -> Response {
    let status = StatusCode::NOT_FOUND;
    match request.uri().path() {
        "/part" => (status, Outcome::refuse(), "kept").into_response(),
        "/extension" => {
            let mut response = (status, "kept").into_response();
            response.extensions_mut().insert(Outcome::refuse());
            response
        }
        "/commit" => (StatusCode::INTERNAL_SERVER_ERROR, Outcome::commit(), "kept").into_response(),
        "/abandon" => (StatusCode::CREATED, Outcome::abandon(), "free").into_response(),
        _ => (status, "free").into_response(),
    }
}

// H32: by extension or response part, over the default and over a policy of one's own.
#[tokio::test]
async fn a_handlers_word_outranks_the_policy() {
    let reversed = Policy::from_fn(|parts| if parts.status == 404 { Outcome::commit() } else { Outcome::abandon() });
    for policy in [Policy::default(), reversed] {
        for (path, settlement) in
            [("/part", "refuse"), ("/extension", "refuse"), ("/commit", "commit"), ("/abandon", "abandon")]
        {
            let store = Fake::new();
            let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).policy(policy.clone());
            let app = Router::new().fallback(by_word).layer(layer);
            let first = send(&app, request(http::Method::POST, path, Some("k"), "")).await;
            let again = send(&app, request(http::Method::POST, path, Some("k"), "")).await;
            assert_eq!(store.settlements()[0], settlement, "{path}");
            assert_eq!((again.status, &again.body), (first.status, &first.body));
            assert_eq!(again.is_replay(), settlement != "abandon", "{path}");
        }
    }
}

// H32: the whole policy is replaceable.
#[tokio::test]
async fn a_policy_of_ones_own_decides() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().policy(Policy::from_fn(|parts| {
        assert_eq!(parts.status, 201);
        Outcome::abandon()
    })));
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    assert_eq!(send(&app, post("k")).await.text(), "run 2");
}

// H32, H42: an answer that says "later" is none for ever; the retry finds out.
#[tokio::test]
async fn a_conflict_that_will_pass_is_not_stored() {
    let runs = Runs::default();
    let counted = runs.clone();
    let app = Router::new().fallback(async move || {
        let status = if counted.next() == 1 { StatusCode::CONFLICT } else { StatusCode::CREATED };
        (status, [("retry-after", "7")])
    });
    let app = app.layer(layer());
    assert_eq!(send(&app, post("k")).await.status, 409);
    assert_eq!(send(&app, post("k")).await.status, 201);
}

// H32: a stored answer never replays its own Retry-After.
#[tokio::test]
async fn a_stored_answer_loses_its_retry_after() {
    let sold_out = async || (StatusCode::CONFLICT, Outcome::refuse(), [("retry-after", "7")], "sold out");
    let app = Router::new().fallback(sold_out);
    let app = app.layer(layer());
    assert_eq!(send(&app, post("k")).await.header("retry-after"), Some("7"));
    let replay = send(&app, post("k")).await;
    assert!(replay.is_replay() && replay.text() == "sold out");
    assert!(!replay.headers.contains_key("retry-after"));
}
