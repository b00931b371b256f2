//! What these tests share with those of the layer.

#[path = "../it/support/counters.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod counters;
#[path = "../it/support/mysql.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod mysql;
#[path = "../it/support/postgres.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod postgres;
