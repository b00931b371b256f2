#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used
)]
mod support {
    #[path = "../messages/support/brokers.rs"]
    #[allow(dead_code)]
    pub mod brokers;
    #[path = "../it/support/mysql.rs"]
    #[allow(dead_code)]
    pub mod mysql;
    #[path = "../messages/support/outbox_lab.rs"]
    pub mod outbox_lab;
    #[path = "../it/support/postgres.rs"]
    #[allow(dead_code)]
    pub mod postgres;
}
#[path = "messages/relay/mod.rs"]
mod relay;
