//! One request, and what was heard.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::Failure;
use crate::service::{Inspected, Order, RUN, TENANT, Told, digest};

#[derive(Clone)]
pub struct Asker(Client<HttpConnector, Full<Bytes>>);

/// A final answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub sent: Instant,
    pub heard: Instant,
    pub status: u16,
    pub is_replay: bool,
    /// Hexadecimal SHA-256 of the body.
    pub digest: String,
    /// What is wrong with it whatever was done.
    pub flaw: Option<&'static str>,
}

#[derive(Debug)]
pub enum Heard {
    Answer(Answer),
    /// The same request may be sent again.
    Later,
    /// The key is another request's.
    KeyReused,
    /// Nothing, or not in time.
    Nothing,
    /// What no honest client may be told.
    Wrong(String),
}

impl Asker {
    pub fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    pub async fn ask(&self, address: &str, order: &Order, patience: Duration) -> Heard {
        let sent = Instant::now();
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{address}/operations"))
            .header(CONTENT_TYPE, "application/json")
            .header(TENANT, order.tenant())
            .header("idempotency-key", order.key())
            .body(Full::new(serde_json::to_vec(order).map(Bytes::from).unwrap_or_default()));
        let Ok(request) = request else { return Heard::Wrong("a request that cannot be sent".to_owned()) };
        let whole = async {
            let (head, body) = self.0.request(request).await.ok()?.into_parts();
            Some((head, body.collect().await.ok()?.to_bytes()))
        };
        let Ok(Some((head, body))) = timeout(patience, whole).await else { return Heard::Nothing };
        let problem = || {
            let document: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            document["type"].as_str().unwrap_or("?").to_owned()
        };
        match head.status {
            StatusCode::CREATED | StatusCode::PAYMENT_REQUIRED => Heard::Answer(Answer {
                sent,
                heard: Instant::now(),
                status: head.status.as_u16(),
                is_replay: head.headers.contains_key("idempotent-replayed"),
                digest: digest(&body),
                flaw: flaw(order, &head.headers, &body),
            }),
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE if head.headers.contains_key(RETRY_AFTER) => {
                Heard::Later
            }
            StatusCode::UNPROCESSABLE_ENTITY if problem().ends_with("key-reused") => Heard::KeyReused,
            status => Heard::Wrong(format!("{} {}", status.as_u16(), problem())),
        }
    }

    /// What a service says of itself.
    pub async fn inspect(&self, address: &str) -> Result<Inspected, Failure> {
        let request = Request::get(format!("http://{address}/inspect")).body(Full::new(Bytes::new()))?;
        let answer = timeout(Duration::from_secs(90), self.0.request(request)).await??;
        Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
    }
}

/// Head and body must be of one answer, and that of this operation.
fn flaw(order: &Order, head: &HeaderMap, body: &[u8]) -> Option<&'static str> {
    let Ok(told) = serde_json::from_slice::<Told>(body) else { return Some("an answer cannot be read") };
    if told.operation != order.operation {
        return Some("an answer is another operation's");
    }
    let is_named = head.get(RUN).is_some_and(|run| run == told.run.as_str());
    (!is_named).then_some("an answer lacks its header field")
}
