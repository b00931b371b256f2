//! The middleware for reqwest (C3).

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Redirect;
use axum::routing::any;
use bytes::Bytes;
use idempotency::client::RetryPolicy;
use idempotency::client::reqwest::{IdempotentMiddleware, client};
use idempotency::testing::assert_one_key_per_operation;
use reqwest_middleware::ClientWithMiddleware;

fn quick() -> ClientWithMiddleware {
    let policy = RetryPolicy::new().backoff(Duration::from_millis(5), Duration::from_millis(20));
    client(reqwest::Client::builder().no_proxy(), IdempotentMiddleware::new(policy)).unwrap()
}

// C3, C5
#[tokio::test]
async fn the_middleware_has_one_key_per_operation() {
    let client = quick();
    assert_one_key_per_operation(|url| {
        let request = client.post(url).header("content-type", "application/json").body("{\"amount\": 1}");
        async move { drop(request.send().await) }
    })
    .await;
}

// C5
#[tokio::test]
#[should_panic(expected = "given up")]
async fn a_stream_gets_one_attempt() {
    let client = quick();
    assert_one_key_per_operation(|url| {
        let request = client.post(url).body(reqwest::Body::wrap(http_body_util::StreamBody::new(one_frame())));
        async move { drop(request.send().await) }
    })
    .await;
}

fn one_frame() -> impl futures_util::Stream<Item = Result<http_body::Frame<Bytes>, Infallible>> {
    futures_util::stream::iter([Ok(http_body::Frame::data(Bytes::from_static(b"{}")))])
}

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

// C1, C3: a redirect to another origin is an answer; one within the origin is followed with the key.
#[tokio::test]
async fn the_key_does_not_leave_its_origin() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let record = any(async move |headers: HeaderMap| {
        log.lock().unwrap().push(headers.get("idempotency-key").cloned());
        StatusCode::CREATED
    });
    let there = serve(Router::new().route("/there", record.clone())).await;
    let here = Router::new()
        .route("/away", any(async move || Redirect::temporary(&format!("{there}/there"))))
        .route("/home", any(async || Redirect::temporary("/there")))
        .route("/loop", any(async || Redirect::temporary("/loop")))
        .route("/there", record);
    let here = serve(here).await;
    let client = quick();
    let send = async |path: &str| client.post(format!("{here}{path}")).body("{}").send().await;
    assert_eq!(send("/away").await.unwrap().status(), 307);
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(send("/home").await.unwrap().status(), 201);
    assert!(matches!(seen.lock().unwrap()[..], [Some(_)]));
    assert!(send("/loop").await.is_err());
}
