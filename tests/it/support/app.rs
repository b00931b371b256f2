//! A small axum service over Postgres whose handler a test writes, and requests to it.

use std::future::Future;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use bytes::Bytes;
use http_body_util::BodyExt;
use idempotency::store::Store;
use idempotency::{IdempotencyLayer, Scope, Tx};
use sqlx::{PgPool, Postgres};
use tower::ServiceExt;

/// A handler of `POST /effects`.
pub fn effects<F, Fut, R, S>(store: S, handler: F) -> Router
where
    F: Fn(Tx<Postgres>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoResponse,
    S: Store,
{
    layered(IdempotencyLayer::new(store, Scope::shared()), handler)
}

pub fn layered<F, Fut, R, S>(layer: IdempotencyLayer<S>, handler: F) -> Router
where
    F: Fn(Tx<Postgres>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoResponse,
    S: Store,
{
    let handler = move |tx: Tx<Postgres>| handler(tx);
    Router::new().route("/effects", post(handler)).layer(layer)
}

/// The business table of the tests.
pub async fn create_effects(pool: &PgPool) {
    sqlx::raw_sql("CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL)")
        .execute(pool)
        .await
        .unwrap();
}

/// Writes one business row through the claim's transaction.
pub async fn write_effect(tx: &mut Tx<Postgres>, what: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects (what) VALUES ($1)").bind(what).execute(&mut **tx).await.map(drop)
}

/// How many business rows are committed.
pub async fn count_effects(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(pool).await.unwrap()
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Got {
    pub status: StatusCode,
    pub headers: axum::http::HeaderMap,
    pub body: Bytes,
}

impl Got {
    /// The last part of the problem's type.
    pub fn problem(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        document["type"].as_str().unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned()
    }

    pub fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }

    pub fn waits(&self) -> bool {
        self.headers.contains_key("retry-after")
    }
}

pub fn request(key: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::post("/effects").header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// Sends one request to a clone of the service.
pub async fn send(app: &Router, key: Option<&str>, body: &str) -> Got {
    got(app.clone().oneshot(request(key, body)).await.unwrap()).await
}

pub async fn got(response: Response<Body>) -> Got {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Got { status: parts.status, headers: parts.headers, body }
}
