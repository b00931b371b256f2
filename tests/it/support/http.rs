//! Requests, answers and handlers for the tests of the layer.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use idempotency::problem::{Problem, TYPE_PREFIX};
use idempotency::{IdempotencyLayer, MemoryStore, Scope};
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt};

pub const KEY: &str = "idempotency-key";

/// A layer over a new memory store, one scope for all.
pub fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::new(MemoryStore::new(), Scope::shared())
}

pub fn request(method: Method, path: &str, key: Option<&str>, body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header(KEY, key);
    }
    request.body(body.into()).unwrap()
}

/// `POST /` with a key and the body `{}`.
pub fn post(key: &str) -> Request<Body> {
    request(Method::POST, "/", Some(key), "{}")
}

/// `POST /` with a key and this body.
pub fn post_body(key: &str, body: &'static str) -> Request<Body> {
    request(Method::POST, "/", Some(key), body)
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answered {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
    /// Why reading stopped before the end.
    pub broken: Option<String>,
    pub problem: Option<Problem>,
}

impl Answered {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The last part of the problem's type, and the status: `409 in-progress`; the status alone where there is none.
    pub fn said(&self) -> String {
        let slug = (self.header("content-type") == Some("application/problem+json")).then(|| {
            let document = self.json();
            document["type"].as_str().unwrap().strip_prefix(TYPE_PREFIX).unwrap().to_owned()
        });
        [Some(self.status.as_u16().to_string()), slug].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Sends a request to a clone of the service and reads the answer.
pub async fn send<Svc, B, R>(service: &Svc, request: Request<B>) -> Answered
where
    Svc: Service<Request<B>, Response = Response<R>> + Clone,
    Svc::Error: Debug,
    R: http_body::Body,
    R::Error: Debug,
{
    read(service.clone().oneshot(request).await.unwrap()).await
}

pub async fn read<R>(response: Response<R>) -> Answered
where
    R: http_body::Body,
    R::Error: Debug,
{
    let (parts, body) = response.into_parts();
    let (mut data, mut trailers, mut broken) = (Vec::new(), None, None);
    let mut body = std::pin::pin!(body);
    loop {
        match body.frame().await {
            None => break,
            Some(Err(error)) => {
                broken = Some(format!("{error:?}"));
                break;
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(mut chunk) => data.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining())),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
    Answered {
        status: parts.status,
        headers: parts.headers,
        body: data.into(),
        trailers,
        broken,
        problem: parts.extensions.get().copied(),
    }
}

/// How often a handler ran.
#[derive(Clone, Default)]
pub struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// Counts a run and gives its number, from 1.
    pub fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A router that answers every request with 201 `run N`.
    pub fn app(&self) -> Router {
        let runs = self.clone();
        Router::new().fallback(any(async move || (StatusCode::CREATED, format!("run {}", runs.next()))))
    }
}

/// Holds handlers until the test lets them go on.
#[derive(Clone)]
pub struct Gate {
    entered: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub fn new() -> Self {
        Self { entered: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// In the handler: says that it is here, and waits.
    pub async fn pass(&self) {
        self.entered.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// In the test: waits until one more handler is here.
    pub async fn entered(&self) {
        self.entered.acquire().await.unwrap().forget();
    }

    /// In the test: lets so many handlers go on.
    pub fn open(&self, handlers: usize) {
        self.open.add_permits(handlers);
    }

    /// A router whose handler waits here and then answers 201 `run N`.
    pub fn app(&self, runs: &Runs) -> Router {
        let (gate, runs) = (self.clone(), runs.clone());
        Router::new().fallback(any(async move || {
            let run = runs.next();
            gate.pass().await;
            (StatusCode::CREATED, format!("run {run}"))
        }))
    }
}

/// Lets all other tasks run until nothing happens any more, on a runtime of one thread.
pub async fn settle_down() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
