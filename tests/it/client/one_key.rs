//! One key for all attempts at an operation (C1, C5).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use idempotency::client::{Idempotent, IdempotentRetry, KeyLayer, KeyMaker, RetryPolicy};
use idempotency::testing::assert_one_key_per_operation;
use tower::retry::RetryLayer;
use tower::{Service, ServiceBuilder, ServiceExt};

use super::http;

fn post(url: &str) -> Request<Full<Bytes>> {
    Request::post(url).header("content-type", "application/json").body(Full::from("{\"amount\": 1}")).unwrap()
}

/// Sends one request through a client.
async fn through<S>(client: S, request: Request<Full<Bytes>>)
where
    S: Service<Request<Full<Bytes>>>,
{
    let _ = client.oneshot(request).await;
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().backoff(Duration::from_millis(5), Duration::from_millis(20))
}

// C1, C5
#[tokio::test]
async fn the_paved_path_has_one_key_per_operation() {
    let client = ServiceBuilder::new().layer(Idempotent::new(quick())).service(http());
    assert_one_key_per_operation(|url| through(client.clone(), post(&url))).await;
    let v4 = ServiceBuilder::new().layer(Idempotent::new(quick()).keys(KeyMaker::v4())).service(http());
    assert_one_key_per_operation(|url| through(v4.clone(), post(&url))).await;
}

// C1
#[tokio::test]
async fn a_key_of_ones_own_is_kept() {
    let client = ServiceBuilder::new().layer(Idempotent::new(quick())).service(http());
    assert_one_key_per_operation(|url| {
        let mut request = post(&url);
        request.headers_mut().insert("idempotency-key", url[url.len() - 1..].parse().unwrap());
        through(client.clone(), request)
    })
    .await;
}

// C1: the order that is easy to get wrong.
#[tokio::test]
#[should_panic(expected = "has another key")]
async fn a_key_inside_of_the_retries_is_found() {
    // Something outside makes it worth retrying; the key inside is made anew for every attempt.
    let client = ServiceBuilder::new()
        .layer(KeyLayer::new())
        .layer(RetryLayer::new(IdempotentRetry::new(quick())))
        .map_request(|mut request: Request<Full<Bytes>>| {
            request.headers_mut().remove("idempotency-key");
            request
        })
        .layer(KeyLayer::new())
        .service(http());
    assert_one_key_per_operation(|url| through(client.clone(), post(&url))).await;
}

// C5
#[tokio::test]
#[should_panic(expected = "has another body")]
async fn new_bytes_are_found() {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let client = ServiceBuilder::new()
        .layer(Idempotent::new(quick()))
        .map_request(|request: Request<Full<Bytes>>| {
            request.map(|_| Full::from(NUMBER.fetch_add(1, Ordering::Relaxed).to_string()))
        })
        .service(http());
    assert_one_key_per_operation(|url| through(client.clone(), post(&url))).await;
}

// C5
#[tokio::test]
#[should_panic(expected = "two operations had one key")]
async fn one_key_for_everything_is_found() {
    let client = ServiceBuilder::new().layer(Idempotent::new(quick())).service(http());
    assert_one_key_per_operation(|url| {
        let mut request = post(&url);
        request.headers_mut().insert("idempotency-key", "same".parse().unwrap());
        through(client.clone(), request)
    })
    .await;
}

// C5
#[tokio::test]
#[should_panic(expected = "given up")]
async fn a_client_that_does_not_retry_is_found() {
    let client = ServiceBuilder::new().layer(KeyLayer::new()).service(http());
    assert_one_key_per_operation(|url| through(client.clone(), post(&url))).await;
}

// C5
#[tokio::test]
#[should_panic(expected = "no Idempotency-Key")]
async fn a_client_without_keys_is_found() {
    assert_one_key_per_operation(|url| async move {
        for _ in 0..8 {
            if http().request(post(&url)).await.is_ok_and(|answer| answer.status() == 201) {
                return;
            }
        }
    })
    .await;
}
