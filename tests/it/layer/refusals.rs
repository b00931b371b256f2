//! How the layer's own answers look (H42, H43).

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response};
use idempotency::problem::{Problem, ProblemKind};
use idempotency::{ErrorKind, IdempotencyLayer, MemoryStore, Scope};

use crate::support::fake::Fake;
use crate::support::http::{Answered, KEY, Runs, layer, post, post_body, request, send};

/// One refusal of each kind that the layer makes by itself.
async fn refusals<S: idempotency::store::Store>(
    set: impl Fn(IdempotencyLayer<Fake>) -> IdempotencyLayer<S>,
) -> Vec<Answered> {
    let app = |store: Fake| Runs::default().app().layer(set(IdempotencyLayer::new(store, Scope::shared())));
    let mut all = Vec::new();
    let plain = app(Fake::new());
    all.push(send(&plain, request(http::Method::POST, "/", None, "")).await);
    all.push(send(&plain, post("\"open")).await);
    all.push(send(&plain, request(http::Method::POST, "/", Some("k"), vec![b'x'; 3 * 1024 * 1024])).await);
    send(&plain, post("k")).await;
    all.push(send(&plain, post_body("k", "[]")).await);
    for kind in [ErrorKind::NotRecorded, ErrorKind::CommitRefused, ErrorKind::TransactionEnded, ErrorKind::LeaseLost] {
        all.push(send(&app(Fake::new().unsettled(kind)), post("k")).await);
    }
    all.push(send(&app(Fake::new().down(ErrorKind::Unavailable)), post("k")).await);
    all
}

const SAID: [(&str, bool); 9] = [
    ("400 missing-key", false),
    ("400 malformed-key", false),
    ("413 body-too-large", false),
    ("422 key-reused", false),
    ("503 not-recorded", true),
    ("500 commit-refused", false),
    ("500 transaction-ended", false),
    ("409 lease-lost", true),
    ("503 store-unavailable", true),
];

// H42, H43, cases C30, C31 and T17
#[tokio::test]
async fn a_refusal_is_a_problem_document_that_says_what_to_do() {
    for (answer, (said, waits)) in refusals(IdempotencyLayer::require_key).await.iter().zip(SAID) {
        assert_eq!(answer.said(), said);
        assert_eq!(answer.headers.contains_key("retry-after"), waits, "{said}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{said}");
        assert!(!answer.headers.contains_key("link"));
        let document = answer.json();
        assert_eq!(document["status"], answer.status.as_u16());
        for member in ["title", "detail"] {
            assert!(document[member].as_str().is_some_and(|text| !text.is_empty()), "{said} {member}");
        }
        let uri: http::Uri = "about:blank".parse().unwrap_or_default();
        assert_ne!(document["type"], uri.to_string());
        assert!(document["type"].as_str().unwrap().contains(':'), "absolute");
        assert!(document.get("original-status").is_none());
        let problem = answer.problem.expect("also in the extensions");
        assert_eq!(Some(problem.kind().slug()), said.split(' ').nth(1));
    }
}

// H42: `not-recorded` says that the work may be done, and that the same key learns the truth.
#[test]
fn the_one_refusal_in_doubt_says_so() {
    let detail = ProblemKind::NotRecorded.detail();
    assert!(detail.contains("may or may not") && detail.contains("same key"), "{detail}");
}

// H42: replaceable by a closure; Retry-After, the echo and the extension stay.
#[tokio::test]
async fn a_renderer_of_ones_own_keeps_the_rules() {
    let render = |problem: &Problem| {
        let body = Bytes::from(format!("{{\"error\":\"{}\"}}", problem.kind().slug()));
        Response::builder().status(418).header("x-mine", "1").header("retry-after", "77").body(body).unwrap()
    };
    let answers = refusals(|layer| layer.require_key().refusals(render)).await;
    for (answer, (said, waits)) in answers.iter().zip(SAID) {
        let slug = said.split(' ').nth(1).unwrap();
        assert_eq!((answer.status.as_u16(), answer.json()["error"].as_str()), (418, Some(slug)));
        assert_eq!(answer.header("x-mine"), Some("1"));
        assert_eq!(answer.header("retry-after"), waits.then_some("77"), "{said}");
        assert_eq!(answer.problem.unwrap().kind().slug(), slug);
        assert_eq!(answer.headers.contains_key(KEY), !["missing-key", "malformed-key"].contains(&slug), "{said}");
    }
}

// H42: where the protocol is described.
#[tokio::test]
async fn refusals_can_link_to_their_documentation() {
    let link = "<https://docs.example.com/keys>; rel=\"describedby\"";
    for answer in refusals(|layer| layer.require_key().described_by(HeaderValue::from_static(link))).await {
        assert_eq!(answer.header("link"), Some(link), "{}", answer.said());
    }
}

// H42: never stored.
#[tokio::test]
async fn refusals_are_not_stored() {
    let store = MemoryStore::new();
    let app = Runs::default().app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()).body_limit(2));
    assert_eq!(send(&app, post_body("k", "too long")).await.said(), "413 body-too-large");
    assert_eq!(send(&app, post("\"open")).await.said(), "400 malformed-key");
    assert!(store.is_empty());
    assert_eq!(send(&app, post("k")).await.said(), "201");
}

// H43: 404 and 405 are the router's, and free the key.
#[tokio::test]
async fn the_routers_own_answers_free_the_key() {
    let store = MemoryStore::new();
    let app = axum::Router::new()
        .route("/", axum::routing::get(async || "got"))
        .layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    for (path, said) in [("/", "405"), ("/nowhere", "404")] {
        assert_eq!(send(&app, request(http::Method::POST, path, Some("k"), Body::empty())).await.said(), said);
        assert!(store.is_empty());
    }
}

// H42: `Problem` can be shown by a service's own handlers, too.
#[tokio::test]
async fn a_handlers_problem_is_an_answer_like_any_other() {
    let app = axum::Router::new()
        .fallback(async || Problem::new(ProblemKind::KeyReused).to_response().map(Body::from))
        .layer(layer());
    let answer = send(&app, post("k")).await;
    assert_eq!((answer.said().as_str(), answer.problem), ("422 key-reused", None));
}
