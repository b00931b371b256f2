//! Moves events from the table to their destinations.

#[doc(hidden)]
pub mod plan;
