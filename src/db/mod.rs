//! Everything that differs between databases, and everything that touches a transaction.

pub(crate) mod begin;
pub(crate) mod dialect;
pub(crate) mod fault;
pub(crate) mod in_transaction;
pub(crate) mod inbox;
pub(crate) mod lease;
pub(crate) mod migrate;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod outbox;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod slot;
pub(crate) mod sql;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
pub(crate) mod stats;
pub(crate) mod tx;

pub use dialect::Dialect;
pub use fault::is_retryable;
pub use in_transaction::InTransaction;
pub use lease::LeaseDialect;
pub use outbox::OutboxDialect;
pub use tx::{Tx, TxError};
