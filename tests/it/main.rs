//! The integration tests, one binary: two cores link it once.

#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

mod support;

mod layer;
mod memory_store;
mod postgres_store;
