//! What the tests share.

pub mod app;
pub mod bodies;
pub mod counters;
pub mod fake;
pub mod front;
pub mod grpc;
pub mod http;
pub mod mysql;
pub mod mysql_proxy;
pub mod postgres;
pub mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod service;
