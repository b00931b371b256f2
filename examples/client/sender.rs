//! Sends one operation as often as it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderValue, Request, Response, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use idempotency::client::{Idempotent, RetryPolicy};
use tower::retry::budget::TpsBudget;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

use crate::arguments::Arguments;
use crate::ledger::Entry;

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(20);

pub struct Sender {
    service: BoxCloneSyncService<Request<Full<Bytes>>, Response<Bytes>, BoxError>,
    url: Uri,
    bearer: Option<HeaderValue>,
}

/// How an operation ended.
#[derive(Default)]
pub struct Outcome {
    attempts: u32,
    status: Option<u16>,
    errors: u32,
    /// Whether the answer is one of the operation, so that it need not be sent again.
    pub is_answered: bool,
}

/// Attempts at one operation, and those without an answer. It travels in the extensions of the request.
#[derive(Clone, Default)]
struct Count(Arc<Counters>);

#[derive(Default)]
struct Counters {
    attempts: AtomicU32,
    errors: AtomicU32,
}

impl Sender {
    pub fn new(arguments: &Arguments) -> Self {
        let policy = RetryPolicy::new()
            .attempts(15)
            .deadline(Duration::from_secs(90))
            .backoff(Duration::from_millis(100), Duration::from_secs(3))
            .retry_500()
            // This client has nothing else to do: 1,200 retries a minute, and five for each operation that has ended.
            .budget(Arc::new(TpsBudget::new(Duration::from_secs(60), 20, 5.0)));
        let http = Client::builder(TokioExecutor::new()).build_http();
        let service = ServiceBuilder::new().layer(Idempotent::new(policy)).service(service_fn(move |request| {
            let http = http.clone();
            async move { attempt(http, request).await }
        }));
        Self {
            service: BoxCloneSyncService::new(service),
            url: arguments.url.clone(),
            bearer: arguments.bearer.clone(),
        }
    }

    pub async fn send(&self, request: Request<Bytes>) -> Outcome {
        let count = Count::default();
        let mut request = request.map(Full::new);
        *request.uri_mut() = self.url.clone();
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        request.extensions_mut().insert(count.clone());
        let result = self.service.clone().oneshot(request).await;
        if let Err(error) = &result {
            eprintln!("client: {error}");
        }
        let answer = result.ok();
        Outcome {
            attempts: count.0.attempts.load(Ordering::Relaxed),
            errors: count.0.errors.load(Ordering::Relaxed),
            status: answer.as_ref().map(|answer| answer.status().as_u16()),
            is_answered: answer.is_some_and(|answer| is_final(&answer)),
        }
    }
}

type Http = Client<HttpConnector, Full<Bytes>>;

/// One attempt, read to its end: an answer that breaks off is an attempt that failed.
async fn attempt(http: Http, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, BoxError> {
    let count = request.extensions().get::<Count>().cloned().unwrap_or_default();
    count.0.attempts.fetch_add(1, Ordering::Relaxed);
    let answer = tokio::time::timeout(ATTEMPT, async {
        let (parts, body) = http.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(parts, body))
    });
    let answer = answer.await.unwrap_or_else(|elapsed| Err(elapsed.into()));
    if answer.is_err() {
        count.0.errors.fetch_add(1, Ordering::Relaxed);
    }
    answer
}

/// Below 500, and not one that says "not now".
fn is_final(answer: &Response<Bytes>) -> bool {
    match answer.status().as_u16() {
        408 | 425 | 429 => false,
        409 => !answer.headers().contains_key(RETRY_AFTER),
        status => status < 500,
    }
}

impl Outcome {
    /// One line of JSON.
    pub fn line(&self, entry: &Entry) -> String {
        #[derive(serde::Serialize)]
        struct Line<'a> {
            operation: u64,
            key: &'a str,
            attempts: u32,
            status: Option<u16>,
            errors: u32,
        }
        let key = entry.pending.operation().key().as_str();
        let Self { attempts, status, errors, .. } = *self;
        serde_json::to_string(&Line { operation: entry.operation, key, attempts, status, errors }).unwrap_or_default()
    }
}
