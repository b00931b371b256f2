//! What these tests share: among themselves, and with those of the layer.

pub mod brokers;
pub mod outbox_lab;

#[path = "../../it/support/mysql.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod mysql;
#[path = "../../it/support/mysql_proxy.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod mysql_proxy;
#[path = "../../it/support/postgres.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod postgres;
#[path = "../../it/support/proxy.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod proxy;
#[path = "../../it/support/redis.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod redis;
