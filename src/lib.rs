//! Makes operations safe to repeat.

pub mod fingerprint;
pub mod key;
pub mod record;
