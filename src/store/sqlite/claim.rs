//! A claimed key on SQLite, and how it ends.

use std::fmt;
use std::sync::Arc;

use http::Extensions;
use sqlx::Sqlite;
use tokio::time::{Duration, Instant, timeout};

use super::SqliteStore;
use super::entry::Entry;
use super::lending::Lending;
use super::shared::Shared;
use super::turn::Turn;
use super::writing::Writing;
use crate::db::fault::{Fault, before_commit, fault};
use crate::db::slot::{Closed, Slot};
use crate::db::sqlite::statements::{self, COMPLETED, RUNNING};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit_error};
use crate::store::{Claim, Kept, RollbackOnDrop, Settled, Settlement, Store, Verdict};

/// How long an abandoned claim that has written nothing waits for its turn, so that an immediate retry finds the key
/// free.
const TAKE_BACK: Duration = Duration::from_millis(100);
/// How long a record whose COMMIT failed is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// An announced key and, once the handler has taken it, an open transaction. Dropped, a task of the store rolls the
/// transaction back and takes the announcement back.
pub struct SqliteClaim {
    slot: Arc<Slot<Sqlite>>,
    lending: Arc<Lending>,
}

impl SqliteClaim {
    pub(super) fn new(entry: Entry) -> Self {
        let lending = Lending::new(Arc::clone(&entry.shared), Some(entry));
        Self { slot: Slot::lazy(Arc::clone(&lending) as _), lending }
    }
}

impl Claim for SqliteClaim {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.slot));
    }

    fn take_back(&mut self) -> Result<(), Error> {
        self.slot.check_returned()
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        let Self { slot, lending } = self;
        let shared = Arc::clone(&lending.shared);
        // On a task: half a settlement is none, so it goes on to its end whoever leaves.
        shared.run(async move { settle(&lending, slot.close(), settlement).await }).await?
    }
}

impl RollbackOnDrop for SqliteClaim {}

impl fmt::Debug for SqliteClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lookup = self.lending.entry.as_ref().map(|entry| entry.request.lookup());
        f.debug_struct("SqliteClaim").field("lookup", &lookup).finish_non_exhaustive()
    }
}

async fn settle(lending: &Arc<Lending>, closed: Closed<Sqlite>, settlement: Settlement) -> Result<Settled, Error> {
    // A claim has an entry.
    let entry = lending.entry.as_ref().ok_or(ErrorKind::TransactionEnded)?;
    let mut writing = match closed {
        // The transaction is rolled back when it comes back, and the row is taken back after that.
        Closed::Held => return Err(ErrorKind::HeldTransaction.into()),
        Closed::Unbegun if matches!(settlement, Settlement::Abandon | Settlement::Unknown) => {
            // There is nothing to undo but the announcement. Its turn is awaited for a moment only: no answer hangs on
            // it, and the row is taken back in the background otherwise.
            if let Ok(Ok(turn)) = timeout(TAKE_BACK, lending.shared.turn()).await {
                let _ = entry.discharge(&turn).await;
            }
            return Ok(Settled::Recorded);
        }
        Closed::Unbegun => {
            let turn = lending.shared.turn().await?;
            return conclude(entry, turn, settlement).await;
        }
        Closed::Ended(transaction) => {
            return Err(ended(entry, Arc::clone(lending).reunite(transaction)).await);
        }
        Closed::Intact(transaction) => Arc::clone(lending).reunite(transaction),
    };
    match writing.is_intact().await {
        Ok(true) => {}
        Ok(false) => return Err(ended(entry, writing).await),
        Err(error) => return Err(undone(entry, writing, before_commit::<Sqlite>(error)).await),
    }
    match settlement {
        Settlement::Commit(kept) => commit(entry, writing, &kept).await,
        settlement => {
            let turn = turn_after(&lending.shared, writing.undo().await).await?;
            conclude(entry, turn, settlement).await
        }
    }
}

/// Settles in one step of its own what the handler has written nothing for, or nothing that stays.
async fn conclude(entry: &Entry, turn: Turn, settlement: Settlement) -> Result<Settled, Error> {
    let kept = match settlement {
        Settlement::Commit(kept) | Settlement::Refuse(kept) => kept,
        // Only leases are dispatched: a transaction holds nothing outside itself.
        Settlement::Abandon | Settlement::Unknown => {
            // What fails here is tried again in the background; meanwhile the key is "in progress".
            let _ = entry.discharge(&turn).await;
            return Ok(Settled::Recorded);
        }
    };
    match entry.finish(&turn, &kept).await {
        Ok(true) => Ok(Settled::Recorded),
        Ok(false) => {
            drop(turn);
            superseded(entry, &kept).await
        }
        Err(error) => {
            let _ = entry.discharge(&turn).await;
            Err(error)
        }
    }
}

/// The row is not ours any more: somebody else's verdict stands, so that there are never two different final answers
/// (S11).
async fn superseded(entry: &Entry, kept: &Kept) -> Result<Settled, Error> {
    let store = SqliteStore { shared: Arc::clone(&entry.shared) };
    let claim = match Box::pin(store.claim(&entry.request)).await?.without_claim() {
        Ok(verdict) => return Ok(Settled::Superseded(verdict)),
        Err(claim) => claim,
    };
    // The rival has gone without a word: the key is ours once more.
    let turn = entry.shared.turn().await?;
    match &claim.lending.entry {
        Some(again) if again.finish(&turn, kept).await? => Ok(Settled::Recorded),
        _ => Ok(Settled::Superseded(Verdict::InProgress { retry_after: None })),
    }
}

/// Commits the answer with what the handler has written.
async fn commit(entry: &Entry, mut writing: Writing, kept: &Kept) -> Result<Settled, Error> {
    let (lookup, token) = (entry.request.lookup(), entry.request.token());
    let answer = kept.answer.encode();
    match statements::settle(writing.connection()?, lookup, token, RUNNING, kept.retention, &answer).await {
        Ok(true) => {}
        Ok(false) => return Err(ended(entry, writing).await),
        Err(error) => return Err(undone(entry, writing, before_commit::<Sqlite>(error)).await),
    }
    let (error, turn) = match writing.commit().await {
        Ok(()) => {
            entry.settled();
            return Ok(Settled::Recorded);
        }
        Err(failed) => failed,
    };
    // An error of the disk in COMMIT does not tell whether it is done; the file does, if it can be read (H33).
    if fault::<Sqlite>(&error) == Fault::Lost {
        match entry.find_own(Instant::now() + LOOK).await {
            Ok(Some(COMPLETED)) => {
                entry.settled();
                return Ok(Settled::Recorded);
            }
            Ok(_) => {}
            Err(_) => return Err(Error::with_source(ErrorKind::NotRecorded, error)),
        }
    }
    discharge(entry, turn).await;
    Err(before_commit::<Sqlite>(error))
}

/// Everything is undone, so that an immediate retry finds the key free.
async fn undone(entry: &Entry, writing: Writing, error: Error) -> Error {
    discharge(entry, writing.undo().await).await;
    error
}

/// The claim's transaction was ended by the handler, or by sqlx: the key is closed until a person looks (H29).
async fn ended(entry: &Entry, writing: Writing) -> Error {
    entry.orphaned();
    let turn = writing.undo().await;
    let written = match turn_after(&entry.shared, turn).await {
        Ok(turn) => entry.discharge(&turn).await,
        Err(error) => Err(error),
    };
    let error = match written {
        Ok(()) => Error::new(ErrorKind::TransactionEnded),
        Err(error) => Error::with_source(ErrorKind::TransactionEnded, error),
    };
    emit_error(Event::TransactionEnded, &error);
    error
}

/// Does what is left to do with the row; what fails is tried again in the background.
async fn discharge(entry: &Entry, turn: Option<Turn>) {
    if let Ok(turn) = turn_after(&entry.shared, turn).await {
        let _ = entry.discharge(&turn).await;
    }
}

async fn turn_after(shared: &Shared, turn: Option<Turn>) -> Result<Turn, Error> {
    match turn {
        Some(turn) => Ok(turn),
        None => shared.turn().await,
    }
}
