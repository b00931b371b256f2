//! Which requests are guarded (H1–H4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http::{HeaderName, Method, Request};
use http_body_util::BodyExt;
use idempotency::layer::RequestBody;
use idempotency::{IdempotencyLayer, KeySource, MemoryStore, Scope, Unguarded};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::support::bodies::{Script, Step};
use crate::support::http::{Runs, layer, post, post_body, request, send};

// H1, cases O03 and O04
#[tokio::test]
async fn methods_that_are_not_guarded_pass_even_where_a_key_is_required() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().require_key());
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
        for key in [None, Some("k"), Some("\"never closed")] {
            let before = runs.count();
            let answer = send(&app, request(method.clone(), "/", key, "")).await;
            assert_eq!(answer.said(), "201", "{method} {key:?}");
            assert_eq!(runs.count(), before + 1, "{method} {key:?}");
            assert!(!answer.is_replay());
            assert!(!answer.headers.contains_key("idempotency-key"));
        }
    }
    for method in [Method::POST, Method::PATCH] {
        assert_eq!(send(&app, request(method, "/", None, "")).await.said(), "400 missing-key");
    }
}

// H1: untouched and unbuffered. The body is handed on before it is complete.
#[tokio::test]
async fn the_body_of_a_request_that_is_not_guarded_is_not_read() {
    let body = Script::new([Step::Data("first"), Step::Hang]);
    let polls = Arc::clone(&body.polls);
    let service =
        ServiceBuilder::new().layer(layer()).service(service_fn(async |mut request: Request<RequestBody<Script>>| {
            let frame = request.body_mut().frame().await.unwrap().unwrap();
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(frame.into_data().unwrap())))
        }));
    let request = Request::put("/").header("idempotency-key", "k").body(body).unwrap();
    assert_eq!(send(&service, request).await.text(), "first");
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

// H2: without a key nothing is buffered, nothing stored, and every request runs.
#[tokio::test]
async fn a_request_without_a_key_passes_unbuffered_by_default() {
    let store = MemoryStore::new();
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let body = Script::new([Step::Data("first"), Step::Hang]);
    let polls = Arc::clone(&body.polls);
    let service = ServiceBuilder::new().layer(layer.clone()).service(service_fn(
        async |mut request: Request<RequestBody<Script>>| {
            let frame = request.body_mut().frame().await.unwrap().unwrap();
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(frame.into_data().unwrap())))
        },
    ));
    assert_eq!(send(&service, Request::post("/").body(body).unwrap()).await.text(), "first");
    assert_eq!(polls.load(Ordering::SeqCst), 1);
    assert!(store.is_empty());
    let runs = Runs::default();
    let app = runs.app().layer(layer);
    for run in 1..=2 {
        assert_eq!(send(&app, request(Method::POST, "/", None, "{}")).await.text(), format!("run {run}"));
    }
}

// H1
#[tokio::test]
async fn methods_and_guard_are_configurable_and_options_and_head_are_never_guarded() {
    let runs = Runs::default();
    let all = [Method::PUT, Method::OPTIONS, Method::HEAD, Method::GET];
    let app = runs.app().layer(layer().methods(all).require_key());
    for (method, said) in [
        (Method::PUT, "400 missing-key"),
        (Method::GET, "400 missing-key"),
        (Method::POST, "201"),
        (Method::OPTIONS, "201"),
        (Method::HEAD, "201"),
    ] {
        let answer = send(&app, request(method.clone(), "/", None, "")).await;
        assert_eq!(answer.said(), said, "{method}");
    }
    let app = runs.app().layer(layer().guard(|parts| parts.uri.path() != "/free").require_key());
    assert_eq!(send(&app, request(Method::POST, "/free", None, "")).await.said(), "201");
    assert_eq!(send(&app, request(Method::DELETE, "/x", None, "")).await.said(), "400 missing-key");
    assert_eq!(send(&app, request(Method::OPTIONS, "/x", None, "")).await.said(), "201");
}

// H3
#[tokio::test]
async fn a_middleware_outside_can_leave_a_request_unguarded() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().require_key()).layer(axum::Extension(Unguarded));
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    assert_eq!(send(&app, post("k")).await.text(), "run 2");
}

// H4
#[tokio::test]
async fn the_key_may_come_from_other_fields_a_function_or_the_body() {
    let field = |name: &'static str, value: &str, body: &'static str| {
        Request::post("/").header(name, value).body(Body::from(body)).unwrap()
    };
    let check = async |source: KeySource, first: Request<Body>, again: Request<Body>, other: Request<Body>| {
        let runs = Runs::default();
        let app = runs.app().layer(layer().key_source(source));
        assert_eq!(send(&app, first).await.text(), "run 1");
        let replay = send(&app, again).await;
        assert!(replay.is_replay() && replay.text() == "run 1");
        assert_eq!(send(&app, other).await.text(), "run 2");
        replay
    };
    let webhook = HeaderName::from_static("webhook-id");
    let names = [HeaderName::from_static("idempotency-key"), webhook.clone()];
    let replay = check(
        KeySource::header(webhook.clone()),
        field("webhook-id", "m1", ""),
        field("webhook-id", "m1", ""),
        field("webhook-id", "m2", ""),
    )
    .await;
    assert_eq!(replay.header("webhook-id"), Some("m1"), "the field that held the key is echoed (H39)");
    check(
        KeySource::headers(names),
        field("webhook-id", "m1", ""),
        field("webhook-id", "\"m1\"", ""),
        field("idempotency-key", "m2", ""),
    )
    .await;
    check(
        KeySource::from_head(|parts| parts.uri.query().map(str::to_owned)),
        request(Method::POST, "/?a", None, ""),
        request(Method::POST, "/?a", None, ""),
        request(Method::POST, "/?b", None, ""),
    )
    .await;
    check(
        KeySource::pointer("/id"),
        request(Method::POST, "/", None, r#"{"id":"evt_1"}"#),
        request(Method::POST, "/", None, r#"{"id":"evt_1"}"#),
        request(Method::POST, "/", None, r#"{"id":"evt_2"}"#),
    )
    .await;
}

// H4: a pointer that yields nothing counts as no key.
#[tokio::test]
async fn a_body_without_the_pointed_value_has_no_key() {
    let runs = Runs::default();
    let app = runs.app().layer(layer().key_source(KeySource::pointer("/id")));
    let required = runs.app().layer(layer().key_source(KeySource::pointer("/id")).require_key());
    for body in ["", "no json", r#"{"id":null}"#, r#"{"other":1}"#] {
        let before = runs.count();
        assert_eq!(send(&app, request(Method::POST, "/", None, body)).await.said(), "201");
        assert_eq!(runs.count(), before + 1);
        assert_eq!(send(&required, request(Method::POST, "/", None, body)).await.said(), "400 missing-key");
        assert_eq!(runs.count(), before + 1);
    }
    assert_eq!(send(&app, request(Method::POST, "/", None, r#"{"id":""}"#)).await.said(), "400 malformed-key");
}

// H2, H10: whose key it is matters only where there is a key.
#[tokio::test]
async fn a_request_without_a_key_needs_no_scope() {
    let nobody = Scope::from_fn(|_| None::<String>);
    for source in [KeySource::default(), KeySource::pointer("/id")] {
        let runs = Runs::default();
        let app = runs.app().layer(IdempotencyLayer::new(MemoryStore::new(), nobody.clone()).key_source(source));
        assert_eq!(send(&app, request(Method::POST, "/", None, "{}")).await.said(), "201");
    }
}

// H4: the handler reads the body that the layer has read.
#[tokio::test]
async fn the_handler_gets_the_whole_body_and_its_trailers() {
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&reads);
    let service =
        ServiceBuilder::new().layer(layer()).service(service_fn(move |request: Request<RequestBody<Script>>| {
            let seen = Arc::clone(&seen);
            async move {
                seen.fetch_add(1, Ordering::SeqCst);
                let body = request.into_body().collect().await.unwrap();
                let trailer = body.trailers().map(|trailers| trailers["checksum"].clone());
                assert_eq!(trailer.unwrap(), "1");
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(body.to_bytes())))
            }
        }));
    let trailers = http::HeaderMap::from_iter([(HeaderName::from_static("checksum"), "1".parse().unwrap())]);
    let body = Script::new([Step::Data("one "), Step::Yield, Step::Data("two"), Step::Trailers(trailers)]);
    let request = Request::post("/").header("idempotency-key", "k").body(body).unwrap();
    assert_eq!(send(&service, request).await.text(), "one two");
    assert_eq!(reads.load(Ordering::SeqCst), 1);
}

// H2, case K05: a key that is there is never passed over in silence.
#[tokio::test]
async fn a_malformed_key_is_refused_where_no_key_is_required_too() {
    let runs = Runs::default();
    let app = runs.app().layer(layer());
    let answer = app.clone().oneshot(post_body("\"open", "{}")).await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(runs.count(), 0);
}
