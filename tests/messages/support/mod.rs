//! What these tests share: among themselves, and with those of the layer.

pub mod brokers;
pub mod outbox_lab;

#[path = "../../it/support/mysql.rs"]
#[allow(dead_code)]
pub mod mysql;
#[path = "../../it/support/postgres.rs"]
#[allow(dead_code)]
pub mod postgres;
