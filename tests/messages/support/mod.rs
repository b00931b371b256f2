//! What these tests share: among themselves, and with those of the layer.

pub mod brokers;
