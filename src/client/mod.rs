//! The client's side: one key for all attempts at an operation (feature `client`).
//!
//! A server can only tell a retry from a second operation if both attempts carry one key and the same bytes. So the key
//! is put on **outside** of what retries, and a request is kept before it is sent first.
//!
//! - [`Idempotent`]: the paved path, key and retries in the right order, as one tower layer.
//! - [`KeyLayer`], [`IdempotentRetry`], [`OriginGuard`]: the same as parts.
//! - [`PendingOperation`]: an operation that outlives its process.
//! - `client::reqwest` (feature `reqwest`): a middleware for reqwest-middleware.
//! - `testing::assert_one_key_per_operation` (feature `testing`): whether a client, yours or this one, does it right.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use idempotency::client::{Idempotent, RetryPolicy};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! // Stands for an HTTP client: the first answer is 503.
//! let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
//! let keys = seen.clone();
//! let http = service_fn(move |request: Request<Full<Bytes>>| {
//!     let mut keys = keys.lock().unwrap();
//!     keys.push(request.headers()["idempotency-key"].clone());
//!     let status = if keys.len() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CREATED };
//!     async move { Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap()) }
//! });
//! let client = ServiceBuilder::new()
//!     .layer(Idempotent::new(RetryPolicy::new()))
//!     // The time of one attempt stands inside.
//!     .timeout(Duration::from_secs(10))
//!     .service(http);
//!
//! let request = Request::post("http://payments.example/payments").body(Full::from("{}"))?;
//! assert_eq!(client.oneshot(request).await?.status(), 201);
//! let seen = seen.lock().unwrap();
//! assert!(seen.len() == 2 && seen[0] == seen[1]);
//! # Ok(())
//! # }
//! ```

mod body;
mod course;
mod idempotent;
mod judge;
mod key_layer;
mod keys;
mod operation;
mod origin;
mod policy;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod retry;
mod serial;

pub use body::RepeatBody;
pub use idempotent::Idempotent;
pub use key_layer::{KeyLayer, KeyService};
pub use keys::KeyMaker;
pub use operation::{OperationKey, PendingOperation, TooOld};
pub use origin::{OriginGuard, OriginService};
pub use policy::RetryPolicy;
pub use retry::IdempotentRetry;
