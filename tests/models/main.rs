//! Models that are searched to the last state (stateright): a claim in a transaction, a lease, a relay.
//!
//! Whatever the crate decides in Rust, a model asks the crate for. What a statement of SQL decides is modelled after its text;
//! each model says which. Crashes, lost answers, stalls and rivals are actions like any other; they are bounded, so that no
//! path returns to where it was, and a state in which nothing can happen any more is an end: there every key must be done.
//! All properties are of the kind "always".
//!
//! Each model is also built with one mistake at a time, which the search must find.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test, which tells how many states there were"
)]

mod check;
mod claim;
mod lease;
mod relay;
