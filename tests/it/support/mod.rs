//! What the tests share.

pub mod bodies;
pub mod counters;
pub mod fake;
pub mod http;
pub mod postgres;
