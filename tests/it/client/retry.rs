//! What is tried again, through tower's own retry layer (C2).

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use idempotency::client::{Idempotent, RepeatBody, RetryPolicy};
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::counters::Counters;

/// Answers one after the other, the last one again and again: a status and a `Retry-After`, or none.
type Script = &'static [Option<(u16, Option<&'static str>)>];

/// The end of an operation against a scripted service: its status, its attempts, and how long it took.
async fn play<B>(policy: RetryPolicy, script: Script, request: Request<B>) -> (Option<u16>, usize, Duration)
where
    B: RepeatBody + Send + 'static,
{
    let began = Instant::now();
    let attempts = Arc::new(Mutex::new(0));
    let count = attempts.clone();
    let service = service_fn(move |_: Request<B>| {
        let mut count = count.lock().unwrap();
        let answer = script[(*count).min(script.len() - 1)];
        *count += 1;
        async move {
            let (status, retry_after) = answer.ok_or(io::ErrorKind::ConnectionReset)?;
            let mut response = Response::builder().status(status);
            if let Some(value) = retry_after {
                response = response.header("retry-after", value);
            }
            Ok::<_, io::Error>(response.body(()).unwrap())
        }
    });
    let client = ServiceBuilder::new().layer(Idempotent::new(policy)).service(service);
    let answer = client.oneshot(request).await.ok().map(|answer| answer.status().as_u16());
    let attempts = *attempts.lock().unwrap();
    (answer, attempts, began.elapsed())
}

fn post() -> Request<Full<Bytes>> {
    Request::post("http://a.example/").body(Full::from("{}")).unwrap()
}

// C2
#[tokio::test(start_paused = true)]
async fn errors_and_passing_answers_are_tried_again() {
    let (answer, attempts, took) =
        play(RetryPolicy::new(), &[None, Some((503, None)), Some((201, None))], post()).await;
    assert_eq!((answer, attempts), (Some(201), 3));
    assert!(took >= Duration::from_millis(300) && took <= Duration::from_millis(451), "{took:?}");
    assert_eq!(play(RetryPolicy::new(), &[Some((422, None))], post()).await.1, 1);
    assert_eq!(play(RetryPolicy::new(), &[Some((409, None))], post()).await.1, 1);
    assert_eq!(play(RetryPolicy::stripe(), &[Some((409, None)), Some((200, None))], post()).await.1, 2);
    // Used up: the last answer, or the last error.
    let (answer, attempts, _) = play(RetryPolicy::new(), &[Some((503, None))], post()).await;
    assert_eq!((answer, attempts), (Some(503), 5));
    assert_eq!(play(RetryPolicy::new().attempts(2), &[None], post()).await.0, None);
}

// C2
#[tokio::test(start_paused = true)]
async fn waiting_answers_end_with_the_deadline() {
    let (answer, attempts, took) = play(RetryPolicy::new(), &[Some((409, Some("4")))], post()).await;
    assert_eq!(answer, Some(409));
    assert!(attempts > 9, "{attempts}");
    assert!(took <= Duration::from_secs(60), "{took:?}");
    let (answer, attempts, took) = play(RetryPolicy::new(), &[Some((429, Some("3600")))], post()).await;
    assert_eq!((answer, attempts, took), (Some(429), 1, Duration::ZERO));
}

// C2
#[tokio::test(start_paused = true)]
async fn only_requests_with_a_key_are_tried_again() {
    let get = Request::get("http://a.example/").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(play(RetryPolicy::new(), &[None], get).await.1, 1);
    let put = Request::put("http://a.example/").header("idempotency-key", "k").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(play(RetryPolicy::new(), &[None], put).await.1, 5);
}

// C2
#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_sent_again_gets_one_attempt() {
    let counters = Counters::default();
    let _guard = counters.install();
    let policy = RetryPolicy::new();
    for _ in 0..3 {
        let body = Full::<Bytes>::from("{}").boxed();
        let request = Request::post("http://a.example/").body(body).unwrap();
        assert_eq!(play(policy.clone(), &[Some((503, None))], request).await.1, 1);
    }
    assert_eq!(counters.of("unrepeatable_body"), 1, "said once");
}

// C2: what a service has seen of one operation says nothing of the next one.
#[tokio::test(start_paused = true)]
async fn every_operation_has_its_own_attempts_and_deadline() {
    let attempts = Arc::new(Mutex::new(0));
    let count = attempts.clone();
    let service = service_fn(move |_: Request<Full<Bytes>>| {
        *count.lock().unwrap() += 1;
        async { Ok::<_, io::Error>(Response::builder().status(503).body(()).unwrap()) }
    });
    let mut client = ServiceBuilder::new().layer(Idempotent::new(RetryPolicy::new())).service(service);
    for _ in 0..3 {
        assert_eq!(client.ready().await.unwrap().call(post()).await.unwrap().status(), 503);
        assert_eq!(std::mem::take(&mut *attempts.lock().unwrap()), 5);
        tokio::time::sleep(Duration::from_secs(100)).await;
    }
}
