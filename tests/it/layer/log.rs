//! What log lines, counters and `Debug` may hold (H9, case K19).

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use futures_util::FutureExt;
use http::Request;
use idempotency::{Attempt, ErrorKind, IdempotencyLayer, Scope};
use tower::{Layer, ServiceExt};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::support::bodies::{Script, Step};
use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::send;

/// What is logged on the thread of one test. One subscriber for all: one a thread would race for tracing's cache of
/// what is enabled.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

thread_local! {
    static CURRENT: RefCell<Log> = RefCell::default();
}

impl Log {
    fn of_this_thread() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::TRACE)
                .with_span_events(FmtSpan::FULL)
                .with_ansi(false)
                .with_writer(|| CURRENT.with_borrow(Log::clone));
            tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        });
        let log = Self::default();
        CURRENT.set(log.clone());
        log
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const SECRETS: [&str; 6] = ["k-s3cret", "b-s3cret", "h-s3cret", "p-s3cret", "a-s3cret", "s3cret"];

fn secret(key: &str, body: &'static str) -> Request<Body> {
    Request::post("/p-s3cret?q=p-s3cret")
        .header("idempotency-key", key)
        .header("authorization", "h-s3cret")
        .body(Body::from(body))
        .unwrap()
}

fn over(store: Fake) -> IdempotencyLayer<Fake> {
    IdempotencyLayer::new(store, Scope::from_fn(|_| Some("p-s3cret")))
}

// H9
#[tokio::test]
async fn no_log_line_counter_or_refusal_holds_anything_of_a_request() {
    let (log, counters) = (Log::of_this_thread(), Counters::default());
    let _guard = counters.install();
    let mut refused = Vec::new();
    let answer =
        Router::new().fallback(async |_: Attempt| ([("x-secret", "a-s3cret")], "a-s3cret")).layer(over(Fake::new()));
    for (key, body) in [
        ("k-s3cret", "b-s3cret"),
        ("k-s3cret", "b-s3cret"),
        ("k-s3cret", "b-s3cret other"),
        ("\"k-s3cret", "b-s3cret"),
        ("k-s3cret, k-s3cret", "b-s3cret"),
        ("k-s3cret\\\"", "b-s3cret"),
    ] {
        let answer = send(&answer, secret(key, body)).await;
        if answer.problem.is_some() {
            refused.push(answer);
        }
    }
    assert_eq!(refused.len(), 4);
    for kind in [
        ErrorKind::Unavailable,
        ErrorKind::Conflict,
        ErrorKind::NotRecorded,
        ErrorKind::CommitRefused,
        ErrorKind::TransactionAborted,
        ErrorKind::TransactionEnded,
        ErrorKind::LeaseLost,
    ] {
        let handler = Router::new().fallback(async || "a-s3cret");
        refused.push(send(&handler.clone().layer(over(Fake::new().down(kind))), secret("k-s3cret", "b-s3cret")).await);
        refused.push(send(&handler.clone().layer(over(Fake::new().unsettled(kind))), secret("k-s3cret", "")).await);
        let unprotected = over(Fake::new().down(kind)).run_unprotected_without_store();
        send(&handler.clone().layer(unprotected), secret("k-s3cret", "")).await;
        send(&handler.layer(over(Fake::new().lease().unsettled(kind))), secret("k-s3cret", "")).await;
    }
    let panics = Router::new().fallback(async || -> &str { panic!("a-s3cret") }).layer(over(Fake::new()));
    std::panic::AssertUnwindSafe(send(&panics, secret("k-s3cret", ""))).catch_unwind().await.unwrap_err();
    let streams = Router::new()
        .fallback(async || Body::new(Script::new([Step::Data("a-s3cret"), Step::Fail("a-s3cret")])).into_response());
    send(&streams.clone().layer(over(Fake::new())), secret("k-s3cret", "")).await;
    let cut = Script::new([Step::Data("b-s3cret"), Step::Fail("b-s3cret")]);
    let request = Request::post("/").header("idempotency-key", "k-s3cret").body(Body::new(cut)).unwrap();
    refused.push(send(&streams.layer(over(Fake::new())), request).await);

    let text = log.text();
    for event in ["executed", "replayed", "key-reused", "malformed-key", "store_error", "unsaved", "panicked"] {
        assert!(text.contains(event), "{event} is logged: {text}");
        assert!(counters.of(event) > 0, "{event} is counted");
    }
    assert!(text.contains("ran_unprotected"), "{text}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
        assert!(counters.names().iter().all(|name| !name.contains(secret)));
        for answer in &refused {
            let mut headers = answer.headers.clone();
            // The echo is the client's own.
            headers.remove("idempotency-key");
            assert!(!answer.text().contains(secret) && !format!("{headers:?}").contains(secret), "{answer:?}");
        }
    }
}

// H9, H25: the caller's span goes with the request to its task.
#[tokio::test]
async fn the_callers_span_is_carried_over() {
    let log = Log::of_this_thread();
    let app = Router::new()
        .fallback(async || {
            tracing::info!("in the handler");
            "done"
        })
        .layer(over(Fake::new()));
    let span = tracing::info_span!("callers_span", request = 7);
    tracing::Instrument::instrument(send(&app, secret("k", "")), span).await;
    let lines = log.text();
    let line = lines.lines().find(|line| line.contains("in the handler")).unwrap();
    assert!(line.contains("callers_span{request=7}"), "{line}");
    let line = lines.lines().find(|line| line.contains("executed")).unwrap();
    assert!(line.contains("callers_span{request=7}"), "{line}");
}

// H9
#[tokio::test]
async fn debug_output_holds_nothing_of_a_request() {
    let layer = over(Fake::new());
    let memory = crate::support::http::layer();
    let service = memory.layer(Router::new());
    let future = service.clone().oneshot(secret("k-s3cret", "b-s3cret"));
    let response =
        memory.layer(Router::new().fallback(async || "a-s3cret")).oneshot(secret("k-s3cret", "")).await.unwrap();
    for shown in [format!("{memory:?}"), format!("{service:?}"), format!("{:?}", response.body())] {
        for secret in SECRETS {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
    drop((layer, future));
}
