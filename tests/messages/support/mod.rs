//! What these tests share: among themselves, and with those of the layer.

#[path = "../../it/support/redis.rs"]
#[allow(dead_code, reason = "the tests of the layer use more of it")]
pub mod redis;
