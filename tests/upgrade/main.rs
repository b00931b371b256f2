//! Rolling upgrades (S30): processes of two versions on one database.
//!
//! `first/` holds the tables of the first version and the statements that its processes run, as texts that are never
//! changed. They are run here on the newest tables beside the newest code, and the newest code on the first tables. A
//! migration that breaks an old process fails here, before it meets one.

#![allow(
    missing_docs,
    unreachable_pub,
    async_fn_in_trait,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

mod first;
mod missing;
mod mysql;
mod postgres;
mod rolling;
mod sqlite;

#[path = "../it/support/mysql.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
mod mysql_server;
#[path = "../it/support/postgres.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
mod postgres_server;
