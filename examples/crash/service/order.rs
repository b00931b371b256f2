//! What a client asks for.

use serde::{Deserialize, Serialize};

/// What is to become of an operation, and so what is right in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sort {
    /// It is done.
    Plain,
    /// It is refused for good once its row is written: the row must be gone.
    Declined,
    /// Now and then the service fails once the row is written: it must be gone, and the next attempt goes on.
    Flaky,
    /// Of leases: the row is written in a transaction with a guard.
    Guarded,
    /// Of leases: the row is written in a transaction with a checkpoint, and the next attempt goes on from there.
    Checkpointed,
}

/// The body of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub operation: i64,
    pub sort: Sort,
    /// How long the work takes, in milliseconds, before the row is written and after it.
    pub before: u64,
    pub after: u64,
    /// How many bytes longer the answer is.
    pub filler: usize,
}
