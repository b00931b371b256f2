//! A claimed key on Postgres, and how its transaction ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use sqlx::{Postgres, Transaction};
use tokio::time::{sleep, timeout};

use super::{PostgresStore, Shared};
use crate::db::begin::{begin, roll_back};
use crate::db::fault::{Fault, before_commit, fault, in_claim};
use crate::db::postgres::statements::{COMPLETED, ClaimedRow, Finished, ORPHANED};
use crate::db::postgres::{commit, sql};
use crate::db::slot::{Closed, Slot};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit_error};
use crate::store::{Claim, ClaimRequest, Kept, RollbackOnDrop, Settled, Settlement, Store, Verdict};

/// When to look for a record whose COMMIT was not answered (H33).
const LOOKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(800)];

/// A key held by an open transaction. Dropped, the transaction is rolled back and the key is free.
pub struct PostgresClaim {
    store: Arc<Shared>,
    request: ClaimRequest,
    slot: Arc<Slot<Postgres>>,
    row: ClaimedRow,
}

type Tx = Transaction<'static, Postgres>;

impl PostgresClaim {
    pub(super) fn new(store: Arc<Shared>, request: ClaimRequest, slot: Arc<Slot<Postgres>>, row: ClaimedRow) -> Self {
        Self { store, request, slot, row }
    }

    async fn commit(&self, mut transaction: Tx, kept: &Kept) -> Result<Settled, Error> {
        let answer = kept.answer.encode();
        let settled = self.store.statements.settle(
            &mut transaction,
            self.request.lookup(),
            &self.row.ctid,
            kept.retention,
            &answer,
        );
        match timeout(self.store.settle_timeout, settled).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(self.ended(transaction).await),
            // Nothing was committed: dropped with its connection, the server rolls it back.
            Err(elapsed) => return Err(Error::with_source(ErrorKind::Unavailable, elapsed)),
            Ok(Err(error)) => {
                // A transaction that will not settle is of no use; the answer is the error, not the rollback's.
                self.roll_back(transaction).await;
                return Err(before_commit::<Postgres>(error));
            }
        }
        let lost = match timeout(self.store.settle_timeout, commit(transaction)).await {
            Ok(Ok(())) => return Ok(Settled::Recorded),
            Ok(Err(error)) if fault::<Postgres>(&error) == Fault::Lost => Some(error),
            Ok(Err(error)) => return Err(before_commit::<Postgres>(error)),
            Err(_) => None,
        };
        self.learn_outcome(lost).await
    }

    /// The connection was lost in COMMIT: the claim's random token tells whether its answer is stored (case T15).
    async fn learn_outcome(&self, lost: Option<sqlx::Error>) -> Result<Settled, Error> {
        for pause in LOOKS {
            sleep(pause).await;
            let look = timeout(Duration::from_secs(1), self.find_own()).await;
            if matches!(look, Ok(Ok(true))) {
                return Ok(Settled::Recorded);
            }
        }
        Err(match lost {
            Some(error) => Error::with_source(ErrorKind::NotRecorded, error),
            None => ErrorKind::NotRecorded.into(),
        })
    }

    async fn find_own(&self) -> Result<bool, sqlx::Error> {
        let mut transaction = begin(&self.store.pool, sql::BEGIN).await?;
        self.store.statements.find_own(&mut transaction, self.request.lookup(), self.request.token()).await
    }

    /// Undoes what the handler wrote, and makes sure that it was the claim's transaction which held it. On a connection
    /// that does not answer in time the server undoes it, when it finds out.
    async fn undo(&self, mut transaction: Tx) -> Result<(), Error> {
        let current = self.store.statements.current_xid(&mut transaction);
        match timeout(self.store.settle_timeout, current).await {
            Ok(Ok(current)) if current.as_deref() != Some(self.row.xid.as_str()) => {
                return Err(self.ended(transaction).await);
            }
            // An aborted transaction cannot be asked, nor can a lost connection: the rollback undoes either, or the
            // server already has.
            Ok(Ok(_) | Err(_)) => self.roll_back(transaction).await,
            Err(_) => {}
        }
        Ok(())
    }

    /// What the rollback says is of no interest: a connection that cannot roll back is ended, and the server does it.
    async fn roll_back(&self, transaction: Tx) {
        let _ = timeout(self.store.settle_timeout, roll_back(transaction)).await;
    }

    /// Stores a refusal in a transaction of its own (S11). Where that is not possible somebody else's verdict stands,
    /// so that there are never two different final answers.
    async fn refuse(&self, kept: &Kept) -> Result<Settled, Error> {
        let answer = kept.answer.encode();
        if self.in_time(self.store_finished(COMPLETED, kept.retention, Some(&answer))).await? {
            return Ok(Settled::Recorded);
        }
        let store = PostgresStore { shared: Arc::clone(&self.store) };
        match self.in_time(store.claim(&self.request.again())).await?.without_claim() {
            Ok(verdict) => Ok(Settled::Superseded(verdict)),
            // The rival has gone without a word: the key is ours once more, its transaction empty.
            Err(claim) => match claim.slot.close() {
                Closed::Intact(transaction) => claim.commit(transaction, kept).await,
                _ => Ok(Settled::Superseded(Verdict::InProgress { retry_after: None })),
            },
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout(self.store.settle_timeout, work)
            .await
            .unwrap_or_else(|elapsed| Err(Error::with_source(ErrorKind::Unavailable, elapsed)))
    }

    async fn store_finished(&self, state: i16, retention: Duration, answer: Option<&[u8]>) -> Result<bool, Error> {
        let mut transaction = begin(&self.store.pool, sql::BEGIN).await.map_err(in_claim::<Postgres>)?;
        let record = Finished {
            state,
            fingerprint: self.request.fingerprint(),
            token: self.request.token(),
            accepted: self.row.accepted,
            retention,
            answer,
        };
        let locks = self.store.locks(&self.request);
        let stored = self
            .store
            .statements
            .store_finished(&mut transaction, self.request.lookup(), locks.key, &record)
            .await
            .map_err(in_claim::<Postgres>)?;
        commit(transaction).await.map_err(in_claim::<Postgres>)?;
        Ok(stored)
    }

    /// The claim's transaction was ended by the handler, or by sqlx: the key is closed until a person looks (H29).
    async fn ended(&self, transaction: Tx) -> Error {
        self.roll_back(transaction).await;
        let error = match self.in_time(self.store_finished(ORPHANED, self.request.retention(), None)).await {
            Ok(_) => Error::new(ErrorKind::TransactionEnded),
            Err(error) => Error::with_source(ErrorKind::TransactionEnded, error),
        };
        emit_error(Event::TransactionEnded, &error);
        error
    }
}

impl Claim for PostgresClaim {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.slot));
    }

    fn take_back(&mut self) -> Result<(), Error> {
        self.slot.check_returned()
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        let transaction = match self.slot.close() {
            Closed::Intact(transaction) => transaction,
            Closed::Ended(transaction) => return Err(self.ended(transaction).await),
            Closed::Held | Closed::Unbegun => return Err(ErrorKind::HeldTransaction.into()),
        };
        let settled = match settlement {
            Settlement::Commit(kept) => self.commit(transaction, &kept).await?,
            Settlement::Refuse(kept) => {
                self.undo(transaction).await?;
                self.refuse(&kept).await?
            }
            // Only leases are dispatched: a transaction holds nothing outside itself.
            Settlement::Abandon | Settlement::Unknown => {
                return self.undo(transaction).await.map(|()| Settled::Recorded);
            }
        };
        if matches!(settled, Settled::Recorded) {
            self.store.completed.insert(self.request.lookup().digest());
        }
        Ok(settled)
    }
}

impl RollbackOnDrop for PostgresClaim {}

impl fmt::Debug for PostgresClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClaim").field("lookup", self.request.lookup()).finish_non_exhaustive()
    }
}
