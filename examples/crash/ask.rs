//! One request, and what was heard.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::Failure;

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
}

#[derive(Debug)]
pub enum Heard {
    Answer(Answer),
    /// The same request may be sent again.
    Later,
    /// Nothing, or not in time.
    Nothing,
    /// What no honest client may be told.
    Wrong(String),
}

impl Asker {
    pub fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    pub async fn ask(&self, address: &str, key: &str, body: Bytes, patience: Duration) -> Heard {
        let sent = Instant::now();
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{address}/operations"))
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", key)
            .body(Full::new(body));
        let Ok(request) = request else { return Heard::Wrong("a request that cannot be sent".to_owned()) };
        let whole = async {
            let (head, body) = self.0.request(request).await.ok()?.into_parts();
            Some((head, body.collect().await.ok()?.to_bytes()))
        };
        let Ok(Some((head, body))) = timeout(patience, whole).await else { return Heard::Nothing };
        match head.status {
            StatusCode::CREATED | StatusCode::PAYMENT_REQUIRED => Heard::Answer(Answer {
                sent,
                heard: Instant::now(),
                status: head.status.as_u16(),
                is_replay: head.headers.contains_key("idempotent-replayed"),
                digest: Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect(),
            }),
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE if head.headers.contains_key(RETRY_AFTER) => {
                Heard::Later
            }
            status => {
                let document: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
                Heard::Wrong(format!("{} {}", status.as_u16(), document["type"].as_str().unwrap_or("?")))
            }
        }
    }

    /// What a service says of itself.
    pub async fn inspect(&self, address: &str) -> Result<Vec<String>, Failure> {
        let request = Request::get(format!("http://{address}/inspect")).body(Full::new(Bytes::new()))?;
        let answer = timeout(Duration::from_secs(90), self.0.request(request)).await??;
        Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
    }
}
