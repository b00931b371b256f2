//! The purger on real servers: what is deleted, what is left, and what two of them, a drop or an error leave behind.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

mod documented;
mod lab;
mod memory;
mod plans;
mod support;
mod together;
mod unpurged;
