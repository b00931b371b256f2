//! What a client asks for, and what it is told.

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

/// The header field that says whose request it is.
pub const TENANT: &str = "tenant";

impl Order {
    /// Two tenants use the same keys at the same time.
    pub fn tenant(&self) -> &'static str {
        if self.operation % 2 == 0 { "even" } else { "odd" }
    }

    pub fn key(&self) -> String {
        format!("operation-{}", self.operation / 2)
    }

    /// Another request under the same key.
    pub fn altered(self) -> Self {
        Self { filler: self.filler + 1, ..self }
    }
}

/// The header field of an answer that repeats [`Told::run`].
pub const RUN: &str = "run";

/// The body of an answer: no other run gives the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    pub operation: i64,
    pub run: String,
    pub filler: String,
}
