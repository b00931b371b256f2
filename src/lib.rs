//! Makes operations safe to repeat.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod clock;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod db;
mod error;
mod events;
mod extract;
pub mod fingerprint;
pub mod key;
pub mod layer;
mod lookup;
pub mod policy;
pub mod problem;
pub mod record;
mod scope;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use attempt::Attempt;
pub use clock::{Clock, SystemClock};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use db::{Dialect, Tx, TxError, is_retryable};
pub use error::{Error, ErrorKind};
#[cfg(feature = "axum")]
pub use extract::NoAttempt;
pub use key::{Key, KeySource};
pub use layer::IdempotencyLayer;
pub use lookup::{Endpoint, LookupKey};
pub use policy::{Outcome, Retention, Unguarded};
pub use problem::RetryLater;
pub use scope::{Scope, ScopeId};
pub use store::MemoryStore;
#[cfg(feature = "postgres")]
pub use store::PostgresStore;
#[cfg(feature = "sqlite")]
pub use store::SqliteStore;
