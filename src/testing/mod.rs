//! For tests: the conformance kits that every store and inbox must pass, a clock to turn by hand, and what unit tests of handlers
//! need. Outside semver.
//!
//! # Cancel safety
//! None of it depends on being awaited to its end, and nothing is undone either: a property that is dropped half-way leaves its
//! harness's tables as they are at that moment. `TestTx::tx` is as `Tx::take`.

mod client;
mod clock;
mod handler;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub mod inbox;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub mod outbox;
pub mod probe;
#[doc(hidden)]
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod purge_texts;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub mod relay;
pub mod store;

pub use client::assert_one_key_per_operation;
pub use clock::ManualClock;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use handler::TestTx;
pub use handler::attempt;
