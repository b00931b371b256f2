//! The inbox on each engine.
