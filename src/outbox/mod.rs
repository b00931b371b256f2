//! The producer's side: an event is written in the transaction that it tells of, and published afterwards.

pub mod publish;
pub mod relay;
