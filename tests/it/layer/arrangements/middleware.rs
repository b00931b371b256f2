//! With the usual middleware above and below.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use bytes::Bytes;
use http::{Request, StatusCode};
use idempotency::layer::RequestBody;
use tower::ServiceBuilder;
use tower::limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::decompression::{DecompressionLayer, RequestDecompressionLayer};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use super::{handler, works};
use crate::support::http::{KEY, Runs, layer, post_body, send};

async fn pass(request: AxumRequest, next: Next) -> axum::response::Response {
    next.run(request).await
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10))
}

/// One router each with this layer above and with it below.
macro_rules! above_and_below {
    ($($name:literal: $other:expr;)*) => {
        $(
            works(concat!($name, " above"), "/", |handler| {
                Router::new().route("/", handler).layer(layer()).layer($other)
            })
            .await;
            works(concat!($name, " below"), "/", |handler| {
                Router::new().route("/", handler).layer($other).layer(layer())
            })
            .await;
            works(concat!($name, " above, in one builder"), "/", |handler| {
                Router::new().route("/", handler).layer(ServiceBuilder::new().layer($other).layer(layer()))
            })
            .await;
        )*
    };
}

// H45
#[tokio::test]
async fn above_and_below_each_of_the_usual() {
    above_and_below! {
        "trace": TraceLayer::new_for_http();
        "cors": CorsLayer::permissive();
        "timeout": timeout();
        "compression": CompressionLayer::new();
        "catch panic": CatchPanicLayer::new();
        "body limit": RequestBodyLimitLayer::new(1024);
        "request decompression": RequestDecompressionLayer::new();
        "decompression": DecompressionLayer::new();
        "concurrency limit": ConcurrencyLimitLayer::new(1);
        "one limit for all": GlobalConcurrencyLimitLayer::new(1);
        "from_fn": from_fn(pass);
    }
}

/// One builder whose inner layers take any body.
macro_rules! below_in_one_builder {
    ($($name:literal: $other:expr;)*) => {
        $(
            works(concat!($name, " below, in one builder"), "/", |handler| {
                Router::new().route("/", handler).layer(ServiceBuilder::new().layer(layer()).layer($other))
            })
            .await;
        )*
    };
}

// H45: what stands below us in one builder is given our bodies.
#[tokio::test]
async fn below_in_one_builder() {
    below_in_one_builder! {
        "trace": TraceLayer::new_for_http();
        "cors": CorsLayer::permissive();
        "timeout": timeout();
        "compression": CompressionLayer::new();
        "catch panic": CatchPanicLayer::new();
        "body limit": RequestBodyLimitLayer::new(1024);
        "request decompression": RequestDecompressionLayer::new();
        "concurrency limit": ConcurrencyLimitLayer::new(1);
    }
    // `from_fn` takes axum's body only.
    works("from_fn below, in one builder", "/", |handler| {
        let stack = ServiceBuilder::new()
            .layer(from_fn(pass))
            .layer(layer())
            .map_request(|request: Request<RequestBody<Body>>| request.map(Body::new))
            .layer(from_fn(pass));
        Router::new().route("/", handler).layer(stack)
    })
    .await;
}

// H45, H13, H30: the documented order, all of it.
#[tokio::test]
async fn in_the_documented_order() {
    works("the documented order", "/", |handler| {
        let stack = ServiceBuilder::new()
            .layer(TraceLayer::new_for_http())
            .layer(CorsLayer::permissive())
            .layer(CompressionLayer::new())
            .layer(CatchPanicLayer::new())
            .layer(RequestDecompressionLayer::new())
            .layer(RequestBodyLimitLayer::new(1024))
            .layer(ConcurrencyLimitLayer::new(8))
            .layer(timeout())
            .layer(layer());
        Router::new().route("/", handler).layer(stack)
    })
    .await;
}

// H38, H45: compression above works on first answers and replays alike; below, what is stored is compressed.
#[tokio::test]
async fn compression_above_and_below() {
    let long = || Router::new().fallback(async || "a long answer, ".repeat(100));
    for app in
        [long().layer(layer()).layer(CompressionLayer::new()), long().layer(CompressionLayer::new()).layer(layer())]
    {
        let app = app.layer(DecompressionLayer::new());
        for replayed in [false, true] {
            let mut request = post_body("k", "{}");
            request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
            let answer = send(&app, request).await;
            assert_eq!((answer.text(), answer.is_replay()), ("a long answer, ".repeat(100).as_str(), replayed));
        }
    }
}

/// `{}` in gzip, one stored block.
const GZIPPED: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x02\0\xfd\xff{}\x43\xbf\xa6\xa3\x02\0\0\0";

// H14, H45: above, the layer sees what was meant, compressed or not; below, it sees what was sent.
#[tokio::test]
async fn request_decompression_above_and_below() {
    let decompression = RequestDecompressionLayer::new;
    for (above, said) in [(true, "200"), (false, "422 key-reused")] {
        let runs = Runs::default();
        let app = Router::new().route("/", handler(&runs));
        let app = match above {
            true => app.layer(layer()).layer(decompression()),
            false => app.layer(decompression()).layer(layer()),
        };
        let zipped = || {
            let request = Request::post("/").header(KEY, "k").header("content-encoding", "gzip");
            request.body(Body::from(Bytes::from_static(GZIPPED))).unwrap()
        };
        for replayed in [false, true] {
            let answer = send(&app, zipped()).await;
            assert_eq!((answer.text(), answer.is_replay()), ("run 1 of {}", replayed));
        }
        assert_eq!(send(&app, post_body("k", "{}")).await.said(), said);
    }
}

// H19, H45: a limit outside says 413, whether it knows the length or finds out.
#[tokio::test]
async fn a_body_limit_above() {
    let runs = Runs::default();
    let app = Router::new().route("/", handler(&runs)).layer(layer()).layer(RequestBodyLimitLayer::new(4));
    assert_eq!(send(&app, post_body("k", "too long")).await.status, 413);
    let chunks = Body::from_stream(futures_util::stream::iter(["too ", "long"].map(Ok::<_, std::io::Error>)));
    let request = Request::post("/").header(KEY, "k").body(chunks).unwrap();
    assert_eq!(send(&app, request).await.said(), "413 body-too-large");
    assert_eq!((send(&app, post_body("k", "fits")).await.text(), runs.count()), ("run 1 of fits", 1));
}

// H26, H45: what catches panics stands above us and sees them, or below us and answers for them.
#[tokio::test]
async fn a_panic_above_and_below() {
    let app = || Router::new().fallback(async || -> &'static str { panic!("on purpose") });
    for app in [app().layer(layer()).layer(CatchPanicLayer::new()), app().layer(CatchPanicLayer::new()).layer(layer())]
    {
        for _ in 0..2 {
            let answer = send(&app, post_body("k", "{}")).await;
            assert_eq!((answer.status.as_u16(), answer.is_replay()), (500, false));
        }
    }
}
