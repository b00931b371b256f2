//! The producer's side: an event is written in the transaction that it tells of, and published afterwards.

mod bucket;
mod event;
mod operate;
pub mod publish;
pub mod relay;

pub use bucket::{Bucket, Place};
pub use event::{Event, PendingEvent, TraceContext};
pub use operate::{DeadLetter, DeadLetters, FailingEvent, Stats};
