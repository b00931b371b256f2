//! The integration tests, one binary: two cores link it once.

mod support;

mod memory_store;
mod postgres_store;
