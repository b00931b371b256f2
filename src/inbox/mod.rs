//! The consumer's side of at-least-once delivery: each message acts once.

mod id;
mod message;
pub mod source;

pub use id::{MessageId, MessageIdError};
pub use message::{Message, PayloadDigest};
#[cfg(feature = "redis")]
pub use crate::store::window::{DedupGuard, DedupWindow, DedupWindowBuilder, Entered, Passed, WindowError};
