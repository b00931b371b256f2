//! The integration tests, one binary: two cores link it once.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

mod support;

mod broken_stores;
mod client;
mod deterministic_ids;
mod documents;
mod layer;
mod leased;
mod memory_store;
mod mysql;
#[cfg(feature = "cli")]
mod operator;
mod postgres;
mod precondition;
mod probe;
mod redis;
mod run;
mod service;
mod sqlite;
mod wrapped_stores;
