//! The decisions, apart from all I/O: what a stored state means for a request, and what an answer means for the
//! operation.

mod judge;
mod outcome;
mod status;

pub use judge::{Judgement, State, judge};
pub(crate) use outcome::Keyless;
pub(crate) use outcome::Meaning;
pub use outcome::{Decision, Outcome, Policy, Retention, Unguarded};
