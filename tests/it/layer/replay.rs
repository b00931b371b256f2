//! What is stored of an answer and sent again (H37–H39).

use std::convert::Infallible;
use std::future::ready;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use idempotency::layer::{IDEMPOTENT_REPLAYED, RequestBody};
use idempotency::record::HeaderFilter;
use tower::{Layer, service_fn};

use crate::support::bodies::{Script, Step};
use crate::support::http::{Answered, KEY, Runs, layer, post, send};

fn fields(list: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

/// The first answer and the replay, with the handler's headers only.
async fn twice(respond: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static) -> [Answered; 2] {
    // No router: axum computes a length of its own.
    let app = layer().layer(service_fn(move |_: Request<RequestBody<Body>>| ready(Ok::<_, Infallible>(respond()))));
    let [mut first, mut replay] = [send(&app, post("k")).await, send(&app, post("k")).await];
    assert!(!first.is_replay() && replay.is_replay(), "case R22: a replay, not a second run");
    replay.headers.remove(IDEMPOTENT_REPLAYED);
    for answer in [&mut first, &mut replay] {
        assert_eq!(answer.headers.remove(KEY).unwrap(), "k");
    }
    [first, replay]
}

const KEPT: [(&str, &[u8]); 12] = [
    ("location", b"/payments/1"),
    ("link", b"<a>; rel=x"),
    ("etag", b"\"v1\""),
    ("link", b"<b>; rel=y"),
    ("x-bytes", b"caf\xe9 \xff"),
    ("x-empty", b""),
    ("content-type", b"application/octet-stream"),
    ("content-encoding", b"identity"),
    ("content-language", b"de"),
    ("cache-control", b"no-store"),
    ("vary", b"accept"),
    ("last-modified", b"Sun, 06 Nov 1994 08:49:37 GMT"),
];

const DROPPED: [(&str, &[u8]); 22] = [
    ("date", b"Sun, 06 Nov 1994 08:49:37 GMT"),
    ("connection", b"close, x-hop"),
    ("x-hop", b"1"),
    ("keep-alive", b"timeout=5"),
    ("set-cookie", b"session=s3cret"),
    ("set-cookie", b"other=1"),
    ("www-authenticate", b"Basic"),
    ("authentication-info", b"nextnonce=1"),
    ("retry-after", b"5"),
    ("x-request-id", b"r1"),
    ("traceparent", b"00-1-2-00"),
    ("ratelimit", b"10"),
    ("ratelimit-remaining", b"9"),
    ("x-ratelimit-limit", b"10"),
    ("server-timing", b"db;dur=1"),
    ("access-control-allow-origin", b"*"),
    ("access-control-expose-headers", b"x"),
    ("via", b"1.1 p"),
    ("age", b"3"),
    ("alt-svc", b"clear"),
    ("upgrade", b"h2c"),
    ("te", b"trailers"),
];

// H37, H38, cases R01, R02, R03, R06, R12, R19, D09 and D11: bytes in, the same bytes out.
#[tokio::test]
async fn a_replay_is_the_answer_without_what_belongs_to_one_delivery() {
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let sent = body.clone();
    let [first, replay] = twice(move || {
        let mut response = (StatusCode::CREATED, sent.clone()).into_response();
        *response.headers_mut() = fields(&KEPT);
        for (name, value) in &fields(&DROPPED) {
            response.headers_mut().append(name, value.clone());
        }
        response
    })
    .await;
    let mut all = fields(&KEPT);
    for (name, value) in &fields(&DROPPED) {
        all.append(name, value.clone());
    }
    assert_eq!(first.headers, all, "the first caller gets everything");
    assert_eq!(replay.headers, fields(&KEPT));
    for answer in [first, replay] {
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, &body[..]), "201 stays 201");
    }
}

// H37: trailers too; they go through the same list.
#[tokio::test]
async fn trailers_are_stored_and_replayed() {
    let trailers = || fields(&[("x-checksum", b"1"), ("x-checksum", b"2")]);
    let [first, replay] = twice(move || {
        Response::new(Body::new(Script::new([Step::Data("one "), Step::Data("two"), Step::Trailers(trailers())])))
    })
    .await;
    for answer in [first, replay] {
        assert_eq!((answer.text(), answer.trailers.clone()), ("one two", Some(trailers())));
    }
}

// H37: trailers end a body, also one that stays open after them.
#[tokio::test]
async fn a_body_that_stays_open_after_its_trailers_is_complete() {
    let trailers = || fields(&[("x-checksum", b"1")]);
    let body =
        move || Response::new(Body::new(Script::new([Step::Data("all"), Step::Trailers(trailers()), Step::Hang])));
    let [first, replay] = tokio::time::timeout(std::time::Duration::from_secs(5), twice(body)).await.expect("no hang");
    for answer in [first, replay] {
        assert_eq!((answer.text(), answer.trailers.clone()), ("all", Some(trailers())));
    }
}

// H38: a replayed length is the replay's own.
#[tokio::test]
async fn a_stored_length_is_not_replayed() {
    let [_, replay] = twice(|| {
        let mut response = Response::new(Body::new(Script::chunks(["four"]).hint(4)));
        response.headers_mut().insert("content-length", HeaderValue::from_static("4"));
        response.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
        response
    })
    .await;
    assert!(!replay.headers.contains_key("content-length") && !replay.headers.contains_key("transfer-encoding"));
    assert_eq!(replay.text(), "four");
}

// H39
#[tokio::test]
async fn answers_without_a_body_are_replayed_without_one() {
    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::CREATED, StatusCode::SEE_OTHER] {
        let [first, replay] = twice(move || {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            response
        })
        .await;
        for answer in [first, replay] {
            assert_eq!((answer.status, answer.body.len(), answer.headers.len()), (status, 0, 0));
        }
    }
}

// H38: the lists are configurable both ways.
#[tokio::test]
async fn stored_headers_are_configurable() {
    let filter = HeaderFilter::default().keep(http::header::SET_COOKIE).drop(http::header::LOCATION);
    let app = Router::new()
        .fallback(async || ([("set-cookie", "a=b"), ("location", "/x"), ("x-kept", "1")], "body"))
        .layer(layer().stored_headers(filter));
    assert_eq!(send(&app, post("k")).await.header("location"), Some("/x"));
    let replay = send(&app, post("k")).await;
    assert!(replay.is_replay());
    assert_eq!(replay.header("set-cookie"), Some("a=b"));
    assert_eq!((replay.header("location"), replay.header("x-kept")), (None, Some("1")));
}

// H39, case R17: the name of the mark is configurable.
#[tokio::test]
async fn the_mark_of_a_replay_may_have_another_name() {
    let name = HeaderName::from_static("x-replayed");
    let app = Runs::default().app().layer(layer().replayed_header(name));
    let [first, replay] = [send(&app, post("k")).await, send(&app, post("k")).await];
    assert_eq!((first.header("x-replayed"), first.header("idempotent-replayed")), (None, None));
    assert_eq!((replay.header("x-replayed"), replay.header("idempotent-replayed")), (Some("true"), None));
}

// H39: not on refusals.
#[tokio::test]
async fn a_refusal_is_not_marked_as_a_replay() {
    let app = Runs::default().app().layer(layer());
    send(&app, post("k")).await;
    let refused = send(&app, crate::support::http::post_body("k", "[]")).await;
    assert_eq!((refused.said().as_str(), refused.header("idempotent-replayed")), ("422 key-reused", None));
}

// H38, case R18: the names are constants, for the expose list of CORS.
#[tokio::test]
async fn a_browser_can_read_the_mark() {
    let cors = tower_http::cors::CorsLayer::new()
        .allow_origin(tower_http::cors::Any)
        .allow_headers([idempotency::key::IDEMPOTENCY_KEY])
        .expose_headers([IDEMPOTENT_REPLAYED, idempotency::key::IDEMPOTENCY_KEY]);
    let app = Runs::default().app().layer(layer().require_key()).layer(cors);
    let mut preflight = crate::support::http::request(http::Method::OPTIONS, "/", None, "");
    preflight.headers_mut().insert("origin", HeaderValue::from_static("https://a.example"));
    preflight.headers_mut().insert("access-control-request-method", HeaderValue::from_static("POST"));
    let allowed = send(&app, preflight).await;
    assert_eq!(
        (allowed.status.as_u16(), allowed.header("access-control-allow-headers")),
        (200, Some("idempotency-key"))
    );
    for replayed in [false, true] {
        let answer = send(&app, post("k")).await;
        assert_eq!(answer.is_replay(), replayed);
        assert_eq!(answer.header("access-control-expose-headers"), Some("idempotent-replayed,idempotency-key"));
    }
}
