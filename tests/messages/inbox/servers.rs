//! The test servers.

#[path = "../../it/support/mysql.rs"]
pub mod mysql;
#[path = "../../it/support/mysql_proxy.rs"]
pub mod mysql_proxy;
#[path = "../../it/support/postgres.rs"]
pub mod postgres;
#[path = "../../it/support/proxy.rs"]
pub mod proxy;
