//! Whose key, on which endpoint, for which request (H10–H18).

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post as routed;
use http::{HeaderName, Method, StatusCode};
use idempotency::fingerprint::Fingerprinter;
use idempotency::layer::EndpointKey;
use idempotency::{IdempotencyLayer, MemoryStore, Scope};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Gate, KEY, Runs, layer, post, post_body, request, send, settle_down};

#[derive(Clone)]
struct Principal(&'static str);

fn by_principal() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::new(MemoryStore::new(), Scope::from_extension(|p: &Principal| Some(p.0)))
}

// H10, cases K10, K14 and C07
#[tokio::test]
async fn two_principals_with_one_key_never_meet() {
    let runs = Runs::default();
    let layer = by_principal();
    let app = |who| runs.app().layer(layer.clone()).layer(axum::Extension(Principal(who)));
    assert_eq!(send(&app("alice"), post("k")).await.text(), "run 1");
    assert_eq!(send(&app("bob"), post_body("k", "other")).await.text(), "run 2");
    assert_eq!(send(&app("alice"), post("k")).await.text(), "run 1");
}

// H10, case K12
#[tokio::test]
async fn a_request_of_nobody_is_refused_and_shares_no_space() {
    let runs = Runs::default();
    let app = runs.app().layer(by_principal());
    for _ in 0..2 {
        let answer = send(&app, post("k")).await;
        assert_eq!(answer.said(), "500 scope-unavailable");
        assert!(!answer.headers.contains_key("retry-after"));
    }
    let empty = runs.app().layer(by_principal()).layer(axum::Extension(Principal("")));
    assert_eq!(send(&empty, post("k")).await.said(), "500 scope-unavailable");
    assert_eq!(runs.count(), 0);
}

// H10: virtual hosts are told apart by the scope only.
#[tokio::test]
async fn the_host_does_not_count() {
    let app = Runs::default().app().layer(layer());
    let on = |host: &str| Request::post("/").header("host", host).header(KEY, "k").body(Body::empty()).unwrap();
    assert_eq!(send(&app, on("a.example")).await.text(), "run 1");
    assert!(send(&app, on("b.example")).await.is_replay());
}

// H11: a layer inside `nest` sees the prefix.
#[tokio::test]
async fn one_handler_under_two_prefixes_is_two_operations() {
    let runs = Runs::default();
    let handler = runs.clone();
    let api = || {
        let runs = handler.clone();
        Router::new().route("/pay", routed(async move || format!("run {}", runs.next())))
    };
    let shared = layer();
    let inner = api().layer(shared.clone());
    let app = Router::new().nest("/v1", inner.clone()).nest("/v2", inner);
    for (path, text) in [("/v1/pay", "run 1"), ("/v2/pay", "run 2"), ("/v1/pay", "run 1"), ("/v2/pay", "run 2")] {
        assert_eq!(send(&app, request(Method::POST, path, Some("k"), "")).await.text(), text, "{path}");
    }
    assert_eq!(runs.count(), 2);
}

// H11, case F06
#[tokio::test]
async fn the_endpoint_is_path_or_matched_path_or_left_out() {
    let check = async |endpoint: Option<EndpointKey>, path: &str| {
        let runs = Runs::default();
        let handler = runs.clone();
        let layer = endpoint.map_or_else(layer, |endpoint| layer().endpoint(endpoint));
        let handler = routed(async move || format!("run {}", handler.next())).patch(async || "patched");
        let app = Router::new().route("/pay/{id}", handler.clone()).route("/other", handler).route_layer(layer);
        assert_eq!(send(&app, request(Method::POST, "/pay/1", Some("k"), "")).await.text(), "run 1");
        assert!(send(&app, request(Method::POST, "/pay/1", Some("k"), "")).await.is_replay());
        send(&app, request(Method::POST, path, Some("k"), "")).await.said()
    };
    assert_eq!(check(None, "/pay/2").await, "200");
    assert_eq!(check(Some(EndpointKey::Path), "/pay/2").await, "200");
    assert_eq!(check(Some(EndpointKey::MatchedPath), "/pay/2").await, "422 key-reused");
    assert_eq!(check(Some(EndpointKey::MatchedPath), "/other").await, "200");
    assert_eq!(check(Some(EndpointKey::Ignored), "/other").await, "422 key-reused");
}

// H11: method too; and without a matched path the path stands in.
#[tokio::test]
async fn another_method_is_another_endpoint() {
    let runs = Runs::default();
    for (endpoint, said) in
        [(EndpointKey::Path, "201"), (EndpointKey::MatchedPath, "201"), (EndpointKey::Ignored, "422 key-reused")]
    {
        let app = runs.app().layer(layer().endpoint(endpoint));
        assert_eq!(send(&app, post("k")).await.said(), "201");
        assert_eq!(send(&app, request(Method::PATCH, "/", Some("k"), "{}")).await.said(), said);
    }
}

// H13, case O10: authentication and limits outside see every request, and their refusals leave no trace.
#[tokio::test]
async fn a_replay_is_authorised_again_and_a_429_outside_leaves_no_trace() {
    async fn authorise(request: Request, next: Next) -> Response {
        match request.headers().get("authorization").map(http::HeaderValue::as_bytes) {
            Some(b"good") => next.run(request).await,
            Some(b"fast") => StatusCode::TOO_MANY_REQUESTS.into_response(),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    }
    let runs = Runs::default();
    let app = runs.app().layer(layer()).layer(from_fn(authorise));
    let with = |token: &str| {
        let mut request = post("k");
        request.headers_mut().insert("authorization", token.parse().unwrap());
        request
    };
    assert_eq!(send(&app, with("fast")).await.said(), "429");
    assert_eq!(send(&app, with("good")).await.text(), "run 1");
    assert_eq!(send(&app, with("bad")).await.said(), "401");
    assert_eq!(send(&app, with("fast")).await.said(), "429");
    assert!(send(&app, with("good")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

// H14, cases F05, F07, F08 and D13: query and body count, and neither is part of the key.
#[tokio::test]
async fn another_query_or_body_is_another_request() {
    let runs = Runs::default();
    let app = runs.app().layer(layer());
    assert_eq!(send(&app, request(Method::POST, "/?to=a", Some("k"), "{}")).await.said(), "201");
    for (path, body) in [("/?to=b", "{}"), ("/", "{}"), ("/?to=a", "[]"), ("/?to=a", "")] {
        let answer = send(&app, request(Method::POST, path, Some("k"), body)).await;
        assert_eq!(answer.said(), "422 key-reused", "{path} {body}");
    }
    assert!(send(&app, request(Method::POST, "/?to=a", Some("k"), "{}")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

// H14: what changes between the attempts of one honest client does not count.
#[tokio::test]
async fn credentials_preconditions_and_traces_do_not_count() {
    let app = Runs::default().app().layer(layer());
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    for name in ["authorization", "cookie", "date", "traceparent", "user-agent", "if-match", "x-request-id"] {
        let mut again = post("k");
        again.headers_mut().insert(HeaderName::from_static(name), "new".parse().unwrap());
        assert!(send(&app, again).await.is_replay(), "{name}");
    }
}

// H14: chosen headers count. H15, case F01: JSON by value, raw on request.
#[tokio::test]
async fn the_fingerprint_is_configurable() {
    let json = |body: &'static str, tenant: &str| {
        let mut request = post_body("k", body);
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        request
    };
    let header = || Fingerprinter::new().header(HeaderName::from_static("x-tenant"));
    for (fingerprinter, reordered, tenant, body) in [
        (Fingerprinter::new(), "201", "201", "422 key-reused"),
        (Fingerprinter::new().raw_body(), "422 key-reused", "201", "422 key-reused"),
        (Fingerprinter::new().key_only(), "201", "201", "201"),
        (header(), "201", "422 key-reused", "422 key-reused"),
    ] {
        let app = Runs::default().app().layer(layer().fingerprint(fingerprinter));
        assert_eq!(send(&app, json(r#"{"a":1,"b":2}"#, "x")).await.said(), "201");
        assert_eq!(send(&app, json(r#"{"b":2.0, "a":1}"#, "x")).await.said(), reordered);
        assert_eq!(send(&app, json(r#"{"a":1,"b":2}"#, "y")).await.said(), tenant);
        assert_eq!(send(&app, json(r#"{"a":1,"b":3}"#, "x")).await.said(), body);
    }
}

// H18: during a rolling deploy two profiles meet, stored and in flight; none is ever told 422.
#[tokio::test]
async fn a_request_of_another_profile_is_never_a_mismatch() {
    let counters = Counters::default();
    let _guard = counters.install();
    let (runs, gate, store) = (Runs::default(), Gate::new(), MemoryStore::new());
    let old = IdempotencyLayer::new(store.clone(), Scope::shared());
    // Built from one another they share one table of this process; built anew they meet in the store.
    let same_process = old.clone().fingerprint(Fingerprinter::new().raw_body());
    let new_process =
        IdempotencyLayer::new(store.clone(), Scope::shared()).fingerprint(Fingerprinter::new().raw_body());
    let app = |layer: &IdempotencyLayer<MemoryStore>| gate.app(&runs).layer(layer.clone());
    let first = tokio::spawn({
        let app = app(&old);
        async move { send(&app, post("k")).await }
    });
    gate.entered().await;
    for layer in [&same_process, &new_process] {
        assert_eq!(send(&app(layer), post("k")).await.said(), "409 in-progress");
        assert_eq!(send(&app(layer), post_body("k", "[]")).await.said(), "409 in-progress", "in doubt 409 (H21)");
    }
    gate.open(1);
    assert_eq!(first.await.unwrap().said(), "201");
    assert_eq!(counters.of("other_profile"), 4);
    for layer in [&same_process, &new_process] {
        assert!(send(&app(layer), post("k")).await.is_replay());
    }
    assert_eq!(counters.of("other_profile"), 6);
    assert_eq!(runs.count(), 1);
}

/// A JSON request with the key `k`.
fn json(body: &'static str) -> Request {
    let mut request = post_body("k", body);
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    request
}

// H18: with the old settings named, a rolling deploy tells requests apart all the same: in the store, and in flight by
// the store and by one table of a process alone.
#[tokio::test]
async fn a_previous_fingerprint_tells_requests_apart_across_a_deploy() {
    let counters = Counters::default();
    let _guard = counters.install();
    let (runs, gate, store) = (Runs::default(), Gate::new(), MemoryStore::new());
    let old = IdempotencyLayer::new(store.clone(), Scope::shared()).fingerprint(Fingerprinter::new().raw_body());
    let new = |layer: IdempotencyLayer<MemoryStore>| {
        let keyed = Fingerprinter::new().keyed("0123456789abcdef0123456789abcdef");
        // The first of the two was never in use: the order does not matter.
        layer
            .fingerprint(keyed)
            .previous_fingerprint(Fingerprinter::new())
            .previous_fingerprint(Fingerprinter::new().raw_body())
    };
    let same_process = new(old.clone());
    let new_process = new(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let app = |layer: &IdempotencyLayer<MemoryStore>| gate.app(&runs).layer(layer.clone());
    let first = tokio::spawn({
        let app = app(&old);
        async move { send(&app, json(r#"{"a":1}"#)).await }
    });
    gate.entered().await;
    // The old settings decide, so another spelling is another request.
    let others = [r#"{"a":2}"#, r#"{"a": 1}"#];
    for layer in [&same_process, &new_process] {
        assert_eq!(send(&app(layer), json(r#"{"a":1}"#)).await.said(), "409 in-progress");
        for other in others {
            assert_eq!(send(&app(layer), json(other)).await.said(), "422 key-reused", "{other}");
        }
    }
    gate.open(1);
    assert_eq!(first.await.unwrap().said(), "201");
    for layer in [&same_process, &new_process] {
        for other in others {
            assert_eq!(send(&app(layer), json(other)).await.said(), "422 key-reused", "{other}");
        }
        let replay = send(&app(layer), json(r#"{"a":1}"#)).await;
        assert!(replay.is_replay() && replay.text() == "run 1");
    }
    assert_eq!(counters.of("other_profile"), 0);
    // What is not named cannot be compared: another body counts as a match, and is counted.
    let unnamed = IdempotencyLayer::new(store, Scope::shared());
    assert!(send(&app(&unnamed), json(r#"{"a":2}"#)).await.is_replay());
    assert_eq!(counters.of("other_profile"), 1);
    assert_eq!(runs.count(), 1);
}

// H18: what is stored is of the current settings.
#[tokio::test]
async fn a_previous_fingerprint_is_compared_with_and_never_stored() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let plain = || IdempotencyLayer::new(store.clone(), Scope::shared());
    let raw = || Fingerprinter::new().raw_body();
    let new = runs.app().layer(plain().previous_fingerprint(raw()));
    assert_eq!(send(&new, json(r#"{"a":1}"#)).await.said(), "201");
    assert!(send(&new, json(r#"{"a": 1}"#)).await.is_replay(), "by value");
    assert!(send(&runs.app().layer(plain()), json(r#"{"a": 1}"#)).await.is_replay());
    let old = runs.app().layer(plain().fingerprint(raw()));
    assert!(send(&old, json(r#"{"a":2}"#)).await.is_replay(), "the old layer does not know the new settings");
    assert_eq!(runs.count(), 1);
}

// H18, H21, H46: two requests that are one by the new settings may be two by the old ones, which decide here. The 422 of
// the one that asked is none of the honest retry's that waits behind it.
#[tokio::test]
async fn a_mismatch_by_the_previous_settings_is_not_shared_with_an_honest_retry() {
    let (runs, go) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let store = Fake::new().on_claim({
        let go = Arc::clone(&go);
        move |call| {
            let go = Arc::clone(&go);
            async move {
                if call == 2 {
                    go.acquire().await.unwrap().forget();
                }
                None
            }
        }
    });
    let raw = || Fingerprinter::new().raw_body();
    let old = IdempotencyLayer::new(store.clone(), Scope::shared()).fingerprint(raw());
    assert_eq!(send(&runs.app().layer(old), json(r#"{"a":1}"#)).await.said(), "201");
    let new = runs.app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()).previous_fingerprint(raw()));
    let mut all = JoinSet::new();
    for body in [r#"{"a": 1}"#, r#"{"a":1}"#, r#"{"a": 1}"#] {
        let app = new.clone();
        all.spawn(async move { (body, send(&app, json(body)).await) });
        settle_down().await;
    }
    assert_eq!(store.claims(), 2);
    go.add_permits(1);
    for (body, answer) in all.join_all().await {
        assert_eq!(answer.said(), if body == r#"{"a":1}"# { "201" } else { "422 key-reused" }, "{body}");
    }
    assert_eq!(runs.count(), 1);
}

// H16, case F14: a client's library draws a new boundary for every attempt.
#[tokio::test]
async fn an_upload_is_the_same_request_whatever_its_boundary() {
    let upload = |boundary: &str, file: &str| {
        let body =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n{file}\r\n--{boundary}--\r\n");
        let mut request = request(Method::POST, "/", Some("k"), body);
        let content_type = format!("multipart/form-data; boundary={boundary}");
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        request
    };
    let (by_parts, raw) = (layer(), layer().fingerprint(Fingerprinter::new().raw_body()));
    for (layer, retry) in [(by_parts, "201"), (raw, "422 key-reused")] {
        let app = Runs::default().app().layer(layer);
        assert_eq!(send(&app, upload("one", "bytes")).await.said(), "201");
        assert_eq!(send(&app, upload("two", "bytes")).await.said(), retry);
        assert_eq!(send(&app, upload("two", "other")).await.said(), "422 key-reused");
    }
}
