//! The key does not leave its origin (C1).

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use idempotency::client::{Idempotent, OriginGuard, RetryPolicy};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http::follow_redirect::policy::clone_body_fn;

type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// `a.example/away` leads to `b.example`, `a.example/home` to `a.example`; where they lead, the first attempt is 503.
async fn follow(path: &str) -> (StatusCode, Vec<(String, Option<String>)>) {
    let seen = Seen::default();
    let log = seen.clone();
    let http = service_fn(move |request: Request<Full<Bytes>>| {
        let uri = request.uri().to_string();
        let key = request.headers().get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
        let mut log = log.lock().unwrap();
        let is_first = !log.iter().any(|(other, _)| *other == uri);
        log.push((uri.clone(), key));
        let response = match uri.as_str() {
            "http://a.example/away" => Response::builder().status(307).header(LOCATION, "http://b.example/there"),
            "http://a.example/home" => Response::builder().status(307).header(LOCATION, "/there"),
            _ => Response::builder().status(if is_first { 503 } else { 201 }),
        };
        async move { Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap()) }
    });
    let policy = RetryPolicy::new().backoff(Duration::from_millis(1), Duration::from_millis(2));
    let client = ServiceBuilder::new()
        .layer(Idempotent::new(policy))
        .layer(FollowRedirectLayer::with_policy(clone_body_fn(|body: &Full<Bytes>| Some(body.clone()))))
        .layer(OriginGuard)
        .service(http);
    let request = Request::post(format!("http://a.example{path}")).body(Full::from("{}")).unwrap();
    let status = client.oneshot(request).await.unwrap().status();
    let seen = seen.lock().unwrap().clone();
    (status, seen)
}

#[tokio::test]
async fn a_redirect_to_another_origin_loses_the_key_and_is_not_retried() {
    let (status, seen) = follow("/away").await;
    let uris: Vec<&str> = seen.iter().map(|(uri, _)| uri.as_str()).collect();
    assert_eq!(uris, ["http://a.example/away", "http://b.example/there"]);
    assert!(seen[0].1.is_some());
    assert_eq!(seen[1].1, None);
    assert_eq!(status, 503, "without a key another attempt were another operation");
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_the_key() {
    let (status, seen) = follow("/home").await;
    assert_eq!((status, seen.len()), (StatusCode::CREATED, 4));
    assert!(seen.iter().all(|(_, key)| key.is_some() && *key == seen[0].1), "{seen:?}");
}
