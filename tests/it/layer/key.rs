//! Keys at the edge of the service (H5–H7), and their echo (H39).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use http::{HeaderValue, Request, StatusCode};
use idempotency::key::KeyRules;
use idempotency::{IdempotencyLayer, MemoryStore, Scope};
use tower::ServiceExt;

use crate::support::bodies::{Script, Step};
use crate::support::http::{KEY, Runs, layer, post, post_body, read, send};

// H5, cases K07 and D11
#[tokio::test]
async fn a_quoted_and_a_bare_key_are_one() {
    for (bare, quoted) in
        [("abc", "\"abc\""), ("abc", "\"abc\";v=1"), (r"a\b", r#""a\\b""#), ("a;b", "\"a;b\""), ("a:b/c", "\"a:b/c\"")]
    {
        let runs = Runs::default();
        let app = runs.app().layer(layer());
        assert_eq!(send(&app, post(bare)).await.text(), "run 1");
        assert!(send(&app, post(quoted)).await.is_replay(), "{bare} {quoted}");
        assert_eq!(runs.count(), 1);
    }
}

// H6, cases K06, K08 and K09: before the body is read, and nothing of it in the answer.
#[tokio::test]
async fn a_malformed_key_is_refused_with_the_body_unread() {
    let runs = Runs::default();
    let app = runs.app().layer(layer());
    let mut malformed: Vec<Vec<HeaderValue>> = vec![vec!["a".parse().unwrap(), "a".parse().unwrap()]];
    for value in
        ["a, b", "a,b", "\"a\", \"b\"", "", "\"\"", "   ", "\"  \"", "\"s3cret", "\"a\" b", r#""\n""#, "s3\"cret"]
    {
        malformed.push(vec![value.parse().unwrap()]);
    }
    malformed.push(vec![HeaderValue::from_bytes(b"caf\xc3\xa9").unwrap()]);
    malformed.push(vec![HeaderValue::from_bytes(b"a\tb").unwrap()]);
    for values in malformed {
        let body = Script::new([Step::Data("{}")]);
        let polls = Arc::clone(&body.polls);
        let mut request = Request::post("/").body(Body::new(body)).unwrap();
        for value in &values {
            request.headers_mut().append(KEY, value.clone());
        }
        let answer = send(&app, request).await;
        assert_eq!(answer.said(), "400 malformed-key", "{values:?}");
        assert_eq!(polls.load(Ordering::SeqCst), 0, "{values:?}");
        assert!(!answer.headers.contains_key(KEY), "no well-formed key, no echo (H39)");
        assert!(!answer.text().contains("s3"), "{}", answer.text());
    }
    assert_eq!(runs.count(), 0);
}

// H7, cases K01 and K02
#[tokio::test]
async fn a_key_has_255_bytes_at_most() {
    let runs = Runs::default();
    let app = runs.app().layer(layer());
    assert_eq!(send(&app, post(&"a".repeat(255))).await.said(), "201");
    for length in [256, 3000] {
        assert_eq!(send(&app, post(&"a".repeat(length))).await.said(), "400 malformed-key");
    }
    assert_eq!(runs.count(), 1);
}

// H7, H39: folded for the look-up, echoed as received.
#[tokio::test]
async fn uuids_in_any_case_are_one_key_and_echoed_as_received() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().key_rules(KeyRules::default().uuid_only()));
    let (lower, upper) = ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8E03978E-40D5-43E8-BC93-6894A57F9324");
    assert_eq!(send(&app, post(lower)).await.header(KEY), Some(lower));
    let replay = send(&app, post(upper)).await;
    assert!(replay.is_replay());
    assert_eq!(replay.header(KEY), Some(upper));
    let refused = send(&app, post("order-1")).await;
    assert_eq!(refused.said(), "400 malformed-key");
    assert!(!refused.headers.contains_key(KEY));
}

// H39: on the first answer, on replays and on refusals, byte for byte.
#[tokio::test]
async fn the_keys_field_is_echoed_as_received() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().body_limit(4));
    for field in ["k", "\"k\"", "\"k\";a=?1", " k ", "\"a\\\\b\"", "a\\b"] {
        let answer = send(&app, post(field)).await;
        assert_eq!(answer.headers.get_all(KEY).iter().collect::<Vec<_>>(), [field], "{}", answer.said());
    }
    for (body, said) in [("other", "413 body-too-large"), ("[1]", "422 key-reused")] {
        let answer = send(&app, post_body("\"k\"", body)).await;
        assert_eq!((answer.said().as_str(), answer.header(KEY)), (said, Some("\"k\"")));
    }
    let nobody = IdempotencyLayer::new(MemoryStore::new(), Scope::from_fn(|_| None::<String>));
    let answer = send(&runs.app().layer(nobody), post("k")).await;
    assert_eq!((answer.said().as_str(), answer.header(KEY)), ("500 scope-unavailable", Some("k")));
}

// H39: a handler's own field of that name does not double the echo.
#[tokio::test]
async fn the_echo_replaces_what_the_handler_put_there() {
    let app = axum::Router::new()
        .fallback(async || (StatusCode::CREATED, [(KEY, "handler"), ("idempotent-replayed", "true")], "x"))
        .layer(layer());
    let fresh = send(&app, post("k")).await;
    assert_eq!(fresh.headers.get_all(KEY).iter().collect::<Vec<_>>(), ["k"]);
    assert!(!fresh.is_replay(), "the mark of a replay is on replays only");
    let replay = send(&app, post("k")).await;
    assert_eq!(replay.headers.get_all(KEY).iter().collect::<Vec<_>>(), ["k"]);
    assert_eq!(replay.headers.get_all("idempotent-replayed").iter().count(), 1);
}

// H39: no echo and no mark where there is no key.
#[tokio::test]
async fn an_answer_without_a_key_has_neither_echo_nor_mark() {
    let app = Runs::default().app().layer(layer());
    let answer = read(app.oneshot(Request::post("/").body(Body::empty()).unwrap()).await.unwrap()).await;
    assert!(!answer.headers.contains_key(KEY) && !answer.headers.contains_key("idempotent-replayed"));
}
