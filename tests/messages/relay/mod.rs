//! The relay on each engine.
