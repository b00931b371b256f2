//! The inbox on each database.

mod kit;
mod lab;
#[allow(dead_code, reason = "not every helper of the servers is of use here")]
mod servers;
