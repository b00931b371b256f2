//! The relay on each engine.

mod kit;
mod order;
mod postgres;
