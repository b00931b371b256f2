//! The consumer's side of at-least-once delivery: each message acts once.
//!
//! Brokers and webhook senders deliver a message again when they do not know whether it arrived. An [`Inbox`] keeps the
//! id of each message that was processed, in the same transaction as what the handler wrote. So a redelivery finds
//! either the id and the effects, or neither.
//!
//! # Two ways
//! - [`Inbox::process`] does everything: it begins a transaction, accepts the message, calls the handler, commits.
//! - [`Inbox::accept`] marks the message in a transaction of yours, which you commit.
//!
//! [`Inbox::prepare`] stands before the first, where something has to be done or waited for without a transaction.
//!
//! # What to tell the broker
//!
//! | result | meaning | acknowledge |
//! |---|---|---|
//! | `First` | processed now, committed | yes |
//! | `Duplicate` | processed before | yes |
//! | `Busy` | somebody processes it just now | no: have it delivered again, after `retry_after` |
//! | `Conflict` | processed before under this id, with another payload | put it aside (dead letters), then yes |
//! | `Poison` | has failed too often | put it aside (dead letters), then yes |
//! | an error | nothing was kept; after [`NotRecorded`](crate::ErrorKind::NotRecorded) everything may have been | no: the redelivery decides |
//!
//! Acknowledge after the commit, never before. A crash between the two costs a redelivery, which is a `Duplicate`.
//!
//! # What it rests on
//! Nothing is a `Duplicate` before the first delivery has committed, and no call waits for a rival: while a first
//! delivery is open, others are `Busy`. (On SQLite, which has one writer, a rival of another process waits for the
//! write lock instead.) What a handler does outside its transaction, calls to others above all, is not covered.

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod accept;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod batch;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod builder;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod core;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod first;
mod id;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod layer;
mod message;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod pace;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod prepare;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod process;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod running;
pub mod source;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod stats;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod tx;

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use crate::db::inbox::InboxDialect;
#[cfg(feature = "redis")]
pub use crate::store::window::{DedupGuard, DedupWindow, DedupWindowBuilder, Entered, Passed, WindowError};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use accept::{Accept, Guard};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use batch::MOST_IN_A_BATCH;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use builder::InboxBuilder;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use core::Inbox;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use first::{First, Opened};
pub use id::{MessageId, MessageIdError};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use layer::{Delivery, DeliveryError, InboxFuture, InboxLayer, InboxService};
pub use message::{Message, PayloadDigest};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use prepare::{Preparation, Prepared};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use process::{ProcessError, Processed};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use stats::{ConsumerStats, InboxStats};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use tx::InboxTx;

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use core::Shared;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(crate) use id::Part;
