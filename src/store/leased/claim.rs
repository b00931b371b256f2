//! A key held by a lease in a SQL table, and how it ends.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Shared, jitter, within};
use crate::db::LeaseDialect;
use crate::db::lease::{Change, Granted, Owner, Standing, Stored, Table};
use crate::error::{Error, ErrorKind};
use crate::store::{Boxed, Checkpoint, Claim, Fence, Kept, LeaseControl, OnUnknown, Settled, Settlement};

/// Between two tries to renew a row that is locked.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A key held in a [`LeaseStore`](super::LeaseStore). Dropped, it frees the key when the lease ends.
pub struct LeaseClaim<DB: LeaseDialect> {
    control: Arc<Control<DB>>,
}

impl<DB: LeaseDialect> LeaseClaim<DB> {
    pub(super) fn new(control: Control<DB>) -> Self {
        Self { control: Arc::new(control) }
    }
}

impl<DB: LeaseDialect> Claim for LeaseClaim<DB> {
    fn attempt(&self) -> u64 {
        self.control.granted.attempt.unsigned_abs()
    }

    fn fence(&self) -> Option<Fence> {
        Some(Fence(self.control.granted.fence.unsigned_abs()))
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.control.lease)
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        Some(Arc::clone(&self.control) as _)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.control.renew().await
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        if self.control.end(&settlement).await? { Ok(Settled::Recorded) } else { Err(ErrorKind::LeaseLost.into()) }
    }
}

impl<DB: LeaseDialect> fmt::Debug for LeaseClaim<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseClaim").field("fence", &self.control.granted.fence).finish_non_exhaustive()
    }
}

/// What a claim and its handler's [`Attempt`](crate::Attempt) hold in common.
pub(super) struct Control<DB: LeaseDialect> {
    pub(super) shared: Arc<Shared<DB>>,
    pub(super) owner: Owner,
    pub(super) granted: Granted,
    pub(super) lease: Duration,
    pub(super) on_unknown: OnUnknown,
    pub(super) limit: Duration,
}

impl<DB: LeaseDialect> Control<DB> {
    /// Whether the owner's row was changed.
    async fn change(&self, change: Change<'_>) -> Result<bool, Error> {
        within(self.limit, async {
            let mut conflicts = 0_u32;
            loop {
                match self.shared.table.change(&self.owner, change).await.map_err(DB::Table::error) {
                    Err(error) if error.kind() == ErrorKind::Conflict => conflicts = conflicts.saturating_add(1),
                    changed => return changed,
                }
                sleep(jitter(conflicts)).await;
            }
        })
        .await
    }

    pub(super) async fn standing(&self) -> Result<Option<Standing>, Error> {
        let standing = self.shared.table.standing(&self.owner);
        within(self.limit, async { standing.await.map_err(DB::Table::error) }).await
    }

    /// A row that is locked by the owner's own guard cannot be renewed, and nobody can take it over meanwhile. It is
    /// tried again for most of the time until the next beat, so that the gap after the guard's end is short.
    async fn renew(&self) -> Result<(), Error> {
        let until = Instant::now() + (self.lease / 4).min(self.limit);
        let pause = (self.lease / 30).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        while !self.change(Change::Renew(self.lease)).await? {
            if self.standing().await? != Some(Standing::Running) {
                return Err(ErrorKind::LeaseLost.into());
            }
            if Instant::now() + pause >= until {
                break;
            }
            sleep(pause).await;
        }
        Ok(())
    }

    /// Whether the owner's row has ended so.
    async fn end(&self, settlement: &Settlement) -> Result<bool, Error> {
        match settlement {
            Settlement::Commit(Kept { answer, retention }) | Settlement::Refuse(Kept { answer, retention }) => {
                let answer = answer.encode();
                self.change(Change::Settle(Stored { answer: &answer, retention: *retention })).await
            }
            Settlement::Abandon => self.change(Change::Abandon).await,
            Settlement::Unknown => self.change(Change::Stop).await,
        }
    }
}

impl<DB: LeaseDialect> LeaseControl for Control<DB> {
    fn dispatching(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let held = self.on_unknown.holds_dispatched();
            if self.change(Change::Dispatch { held }).await? { Ok(()) } else { Err(ErrorKind::LeaseLost.into()) }
        })
    }

    fn record(&self, settlement: Settlement) -> Boxed<'_, ()> {
        Box::pin(async move {
            // The answer to an earlier call may have been lost: what it has recorded stands.
            if self.end(&settlement).await? || self.standing().await? == Some(Standing::Completed) {
                return Ok(());
            }
            Err(ErrorKind::LeaseLost.into())
        })
    }

    fn checkpoint(&self) -> Option<&Checkpoint> {
        self.granted.checkpoint.as_ref()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
