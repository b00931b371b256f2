//! Makes operations safe to repeat.
//!
//! [`IdempotencyLayer`] is a tower layer. It claims the `Idempotency-Key` of a request, runs the handler, and stores
//! its answer. On Postgres, MySQL, MariaDB and SQLite the claim, what the handler writes through its `Tx` and the stored answer are one
//! database transaction. Later requests with the key get the stored answer, 409 while the first one runs, or 422 if
//! they are other requests.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, body::Body, http::Request, routing::post};
//! use idempotency::{IdempotencyLayer, MemoryStore, Scope};
//! use tower::ServiceExt;
//!
//! let layer = IdempotencyLayer::new(MemoryStore::new(), Scope::shared()).require_key();
//! let app = Router::new().route("/payments", post(|| async { "paid" })).layer(layer);
//! let request = |body: &'static str| {
//!     Request::post("/payments").header("idempotency-key", "order-1").body(Body::from(body))
//! };
//!
//! assert_eq!(app.clone().oneshot(request("10 EUR")?).await?.status(), 200);
//! let replay = app.clone().oneshot(request("10 EUR")?).await?;
//! assert_eq!(replay.headers()["idempotent-replayed"], "true");
//! // Another request with the same key.
//! assert_eq!(app.clone().oneshot(request("99 EUR")?).await?.status(), 422);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```
//!
//! # Guides
//! The folder `docs` holds a quickstart, the protocol for clients, guides to stores, transactions, foreign calls, webhooks
//! and queues, the outbox, clients, operations that need no key, testing, operating and telemetry, a list of failures that
//! others met, and benchmarks. In the rendered documentation they are modules of `guide`: `guide::quickstart`,
//! `guide::stores` and so on.
//! `ARCHITECTURE.md` tells how the crate is built; marks such as H29 or S11 in this documentation are rules that it
//! lists.
//!
//! # Map of the crate
//! | what | where |
//! |---|---|
//! | the layer and its settings | [`IdempotencyLayer`], [`layer`] |
//! | stores | [`MemoryStore`], `PostgresStore`, `MySqlStore`, `SqliteStore`, `LeaseStore`, `RedisStore`; the contract for others in [`store`] |
//! | what handlers get | `Tx` (features `postgres`, `mysql`, `sqlite`), [`Attempt`] |
//! | what handlers say | [`Outcome`], [`Retention`], [`RetryLater`] |
//! | whose key it is | [`Scope`] |
//! | the key: syntax, rules, where it comes from | [`key`] |
//! | what makes two requests the same | [`fingerprint`] |
//! | what an answer means, what a stored one means | [`policy`] |
//! | what is kept of an answer | [`record`] |
//! | refusals and their wire format | [`problem`] |
//! | errors between layer and store | [`Error`], [`ErrorKind`] |
//! | the client's side: one key per operation, retries | `client` (feature `client`) |
//! | events that leave with their transaction | `outbox` (features `postgres`, `mysql`, `sqlite`) |
//! | what deletes expired rows in the background | [`purge`] |
//! | ids that are computed | [`DeterministicId`] |
//! | `ETag`, `If-Match`, versions | [`precondition`] |
//! | what an OpenAPI document says | [`openapi`] |
//! | for tests | `testing` (feature `testing`) |
//!
//! # Features
//! - `axum` (default): `Tx` and [`Attempt`] as extractors, [`Outcome`] and [`Retention`] as response parts, and the
//!   original path of nested routers.
//! - `sqlite` (default): `SqliteStore` and `LeaseStore`, with the bundled SQLite.
//! - `postgres` (default): `PostgresStore` and `LeaseStore`. TLS is chosen by a feature of sqlx in the host.
//! - `mysql`: `MySqlStore`, for MariaDB and MySQL. TLS is chosen by a feature of sqlx in the host.
//! - `redis`: `RedisStore`. TLS is chosen by a feature of the crate `redis` in the host.
//! - `nats`, `rabbitmq`, `http-publisher`: publishers of the outbox for NATS JetStream, RabbitMQ and HTTP; `redis` has one for
//!   Redis Streams. TLS is chosen by a feature of the client crate in the host.
//! - `kafka`: a preview of a publisher for Kafka; compiles librdkafka, with make and a C++ compiler.
//! - `cli`: the operator's tool, a binary; nothing for the library.
//! - `tracing`: log lines, and the caller's span on the task that a request runs on.
//! - `metrics`: counters, gauges and histograms, by the facade `metrics`: the guide `guide::telemetry` lists them.
//! - `client`: for the client's side, with tower: keys, retries, operations that outlive their process.
//! - `reqwest`: the same as a middleware of reqwest-middleware. Outside semver.
//! - `testing`: conformance kit for stores, `ManualClock`, a failing server for tests of clients, and `TestTx` and `attempt` for unit tests of handlers.
//!   Outside semver.
//!
//! Without `axum` the layer works over any tower service of HTTP requests: a handler finds [`Attempt`] in the request's
//! extensions, takes its transaction by `Tx::take`, and puts an [`Outcome`] into the extensions of its response.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
#[cfg(feature = "client")]
pub mod client;
mod clock;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod db;
mod derive;
mod digest_map;
mod error;
mod events;
mod extract;
pub mod fingerprint;
#[cfg(any(doc, test))]
pub mod guide;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql", feature = "redis"))]
pub mod inbox;
pub mod key;
pub mod layer;
mod lookup;
pub mod openapi;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub mod outbox;
pub mod policy;
pub mod precondition;
pub mod problem;
pub mod purge;
pub mod record;
#[cfg(any(
    feature = "client",
    all(feature = "http-publisher", any(feature = "postgres", feature = "sqlite", feature = "mysql"))
))]
mod retry_after;
pub mod run;
mod scope;
mod series;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use attempt::Attempt;
pub use clock::{Clock, SystemClock};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use db::{Dialect, InTransaction, LeaseDialect, OutboxDialect, Tx, TxError, is_retryable};
pub use derive::{DeterministicId, IdPart, uuid_v5};
pub use error::{Error, ErrorKind};
#[cfg(feature = "axum")]
pub use extract::NoAttempt;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use inbox::Inbox;
pub use key::{Key, KeySource};
pub use layer::IdempotencyLayer;
pub use lookup::{Endpoint, LookupKey};
pub use policy::{Outcome, Retention, Unguarded};
pub use problem::RetryLater;
pub use scope::{Scope, ScopeId};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use store::LeaseStore;
pub use store::MemoryStore;
#[cfg(feature = "mysql")]
pub use store::MySqlStore;
#[cfg(feature = "postgres")]
pub use store::PostgresStore;
#[cfg(feature = "redis")]
pub use store::RedisStore;
#[cfg(feature = "sqlite")]
pub use store::SqliteStore;

/// The example of the README, as a test.
#[cfg(all(doctest, feature = "axum", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;
