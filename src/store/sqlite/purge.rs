//! Deletes what has expired (S9).

use std::sync::Arc;
use std::time::Duration;

use super::SqliteStore;
use super::shared::{Shared, own_error};
use super::turn::Turn;
use crate::db::sqlite::statements;
use crate::db::sqlite::wait::patiently;
use crate::error::Error;
use crate::purge::Batch;
use crate::store::Purge;

impl Purge for SqliteStore {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        self.purge_batch(limit).await.map(Batch::purged)
    }

    /// The write lock keeps purgers apart, a statement at a time.
    async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        let shared = Arc::clone(&self.shared);
        let turn = self.shared.turn().await?;
        self.shared.run(async move { purge(&shared, &turn, limit).await }).await?
    }
}

/// Each statement is a transaction of its own.
async fn purge(shared: &Shared, turn: &Turn, limit: u32) -> Result<Batch, Error> {
    let until = turn.until();
    let mut purged =
        patiently!(until, statements::purge(&mut *shared.desk(until).await?, limit).await).map_err(own_error)?;
    // Announcements never expire while their owner lives; the dead leave theirs behind where no client comes again.
    let owners =
        patiently!(until, statements::old_owners(&mut *shared.desk(until).await?, limit).await).map_err(own_error)?;
    for owner in owners {
        let left = limit.saturating_sub(u32::try_from(purged.purged()).unwrap_or(u32::MAX));
        if left > 0 && !shared.owner.is(&owner) && !shared.owner.is_alive(&owner) {
            let dead = patiently!(until, statements::purge_dead(&mut *shared.desk(until).await?, left, &owner).await);
            let dead = Batch::Done { purged: dead.map_err(own_error)?, overdue: Duration::ZERO };
            purged = purged.and(dead);
        }
    }
    Ok(purged)
}
