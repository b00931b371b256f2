//! The integration tests, one binary: two cores link it once.
#![allow(
    clippy::disallowed_methods,
    reason = "the clippy rules against spawning and the environment are the library's"
)]
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod support;

mod broken_stores;
mod layer;
mod memory_store;
mod postgres;
mod service;
mod sqlite;
