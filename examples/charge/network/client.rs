//! Calls to the network.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The network at an address.
#[derive(Clone)]
pub struct Network {
    http: Client<HttpConnector, Full<Bytes>>,
    address: String,
}

/// Why a call gave no id.
#[derive(Debug)]
pub enum Fault {
    /// The network has decided.
    Declined,
    /// Whether it was done cannot be told.
    Unknown(String),
}

#[derive(Deserialize)]
struct Made {
    id: String,
}

impl Network {
    /// `address`: `http://HOST:PORT`.
    pub fn at(address: &str) -> Self {
        let address = address.trim_end_matches('/').to_owned();
        Self { http: Client::builder(TokioExecutor::new()).build_http(), address }
    }

    /// A call that may be sent again under its key.
    pub async fn keyed(&self, path: &str, key: Uuid, body: &Value) -> Result<String, Fault> {
        self.call(path, Some(key), body).await
    }

    /// A call that does its work each time it is sent.
    pub async fn unkeyed(&self, path: &str, body: &Value) -> Result<String, Fault> {
        self.call(path, None, body).await
    }

    async fn call(&self, path: &str, key: Option<Uuid>, body: &Value) -> Result<String, Fault> {
        let unknown = |what: String| Fault::Unknown(format!("{path}: {what}"));
        let mut request = Request::post(format!("{}{path}", self.address)).header(CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key.to_string());
        }
        let request = request.body(Full::from(body.to_string())).map_err(|error| unknown(error.to_string()))?;
        let answer = tokio::time::timeout(LIMIT, async {
            let (head, body) = self.http.request(request).await.map_err(|error| error.to_string())?.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>((head.status, body))
        });
        let (status, body) = answer.await.map_err(|error| unknown(error.to_string()))?.map_err(unknown)?;
        match status {
            StatusCode::OK => {
                serde_json::from_slice::<Made>(&body).map(|made| made.id).map_err(|error| unknown(error.to_string()))
            }
            StatusCode::PAYMENT_REQUIRED => Err(Fault::Declined),
            _ => Err(unknown(status.to_string())),
        }
    }
}
