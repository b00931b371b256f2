//! Inbox, outbox and relay against real databases and brokers, a binary of their own. `tests/run` starts the servers.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

mod support;

mod consumers;
mod inbox;
mod outbox;
mod publishers;
mod relay;
