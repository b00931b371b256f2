//! What a purger works on.

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::db::OutboxDialect;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::inbox::{Inbox, InboxDialect};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::outbox::Outbox;
use crate::purge::Batch;
use crate::store::{Boxed, Purge};

/// Something that one batch at a time is taken from.
pub(super) trait Table: Send + Sync {
    fn batch(&self, limit: u32) -> Boxed<'_, Batch>;
}

pub(super) struct Keys<S>(pub(super) S);

impl<S: Purge> Table for Keys<S> {
    fn batch(&self, limit: u32) -> Boxed<'_, Batch> {
        Box::pin(self.0.purge_batch(limit))
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
impl<DB: InboxDialect> Table for Inbox<DB> {
    fn batch(&self, limit: u32) -> Boxed<'_, Batch> {
        Box::pin(self.purge_batch(limit))
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
impl<DB: OutboxDialect> Table for Outbox<DB> {
    fn batch(&self, limit: u32) -> Boxed<'_, Batch> {
        Box::pin(self.purge_batch(limit))
    }
}
