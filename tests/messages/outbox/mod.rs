//! The outbox on each engine.
