//! Deletes what has expired, in the background.
//!
//! [`Purger`] runs in a task of the service, any number of them on one database. What it promises (S9, S31):
//!
//! - **Expired rows only.** Never a live or a running one; dead letters by the retention of their outbox.
//! - **Soon.** What expires is gone before two intervals have passed, unless the database cannot keep up.
//! - **Nobody waits.** A batch is a short transaction of at most a thousand rows, and follows how long the one before took.
//!   Rows that a claim is taking over are stepped over. Between two batches it rests as long as a batch takes.
//! - **One at a time.** Each batch takes a lock that ends with it: an advisory lock of its transaction on Postgres, a named
//!   lock that is freed before the connection goes back on MySQL and MariaDB, the write lock on SQLite. No lock outlives a
//!   batch, so a pooler cannot hand it to somebody else, and whoever dies leaves nothing locked. Who meets another one at
//!   work, maybe on other tables, asks some times again before it rests.
//!
//! Redis expires by itself; a [`RedisStore`](crate::RedisStore) needs no purger.
#![cfg_attr(not(feature = "redis"), allow(rustdoc::broken_intra_doc_links))]

mod batch;
mod pace;
mod pass;
mod purger;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
mod tests;

pub use batch::Batch;
pub use purger::{Purged, Purger};
