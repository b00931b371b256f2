//! A claimed key on MySQL, and how its transaction ends.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use sqlx::{MySql, Transaction};
use tokio::time::{sleep, timeout};

use super::settle::{End, Ending};
use super::{MySqlStore, Shared};
use crate::db::begin::{begin, undisturbed};
use crate::db::fault::before_commit;
use crate::db::mysql::session::Session;
use crate::db::mysql::sql;
use crate::db::slot::{Closed, Slot, Start, Starting};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit_error};
use crate::store::{Claim, ClaimRequest, Kept, RollbackOnDrop, Settled, Settlement, Store, Verdict};

/// When to look for a record whose COMMIT was not answered (H33).
const LOOKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(800)];

/// A key held by an open transaction. Dropped, the transaction is rolled back and the key is free.
pub struct MySqlClaim {
    ending: Ending,
    slot: Arc<Slot<MySql>>,
}

type Tx = Transaction<'static, MySql>;

/// Discards the transaction of a claim that is gone.
struct Discard(Session);

impl Start<MySql> for Discard {
    fn start(self: Arc<Self>) -> Starting<MySql> {
        // It was begun with the claim.
        Box::pin(async { Err(ErrorKind::HeldTransaction.into()) })
    }

    fn discard(self: Arc<Self>, transaction: Tx) {
        self.0.leave_in_background(transaction);
    }
}

impl MySqlClaim {
    pub(super) fn new(store: Arc<Shared>, request: ClaimRequest, session: Session, transaction: Tx) -> Self {
        let slot = Slot::begun_by(transaction, Arc::new(Discard(session.clone())));
        Self { ending: Ending { store, request, session }, slot }
    }

    async fn commit(&self, transaction: Tx, kept: &Kept) -> Result<Settled, Error> {
        let answer = kept.answer.encode().to_vec();
        match self.in_time(Box::pin(self.ending.clone().commit(transaction, kept.retention, answer))).await {
            End::Done => Ok(Settled::Recorded),
            end => self.without_record(end).await,
        }
    }

    /// Stores a refusal in place of the claim's row (S11). Where that is not possible somebody else's verdict stands,
    /// so that there are never two different final answers.
    async fn refuse(&self, transaction: Tx, kept: &Kept) -> Result<Settled, Error> {
        let answer = kept.answer.encode().to_vec();
        match self.in_time(Box::pin(self.ending.clone().refuse(transaction, kept.retention, answer))).await {
            End::Done => return Ok(Settled::Recorded),
            End::Taken => {}
            end => return self.without_record(end).await,
        }
        let store = MySqlStore { shared: Arc::clone(&self.ending.store) };
        let asked = timeout(self.ending.store.settle_timeout, store.claim(&self.ending.request.again())).await;
        let verdict = asked.map_err(|elapsed| Error::with_source(ErrorKind::Unavailable, elapsed))??;
        match verdict.without_claim() {
            Ok(verdict) => Ok(Settled::Superseded(verdict)),
            // The rival has gone without a word: the key is ours once more, its transaction empty.
            Err(claim) => match claim.slot.close() {
                Closed::Intact(transaction) => claim.commit(transaction, kept).await,
                _ => Ok(Settled::Superseded(Verdict::InProgress { retry_after: None })),
            },
        }
    }

    async fn abandon(&self, transaction: Tx) -> Result<Settled, Error> {
        // On a connection that does not answer the server undoes it, when it finds out.
        if let End::Gone = self.in_time(Box::pin(self.ending.clone().undo(transaction))).await {
            self.close_key().await?;
        }
        Ok(Settled::Recorded)
    }

    /// What an end without a record means.
    async fn without_record(&self, end: End) -> Result<Settled, Error> {
        match end {
            End::Unknown(lost) => self.learn_outcome(lost).await,
            End::Refused(error) => Err(before_commit::<MySql>(error)),
            End::Gone | End::Done | End::Taken => {
                self.close_key().await?;
                // Rolled back early, by the server or by hand, and nothing could be written since.
                Err(ErrorKind::TransactionAborted.into())
            }
        }
    }

    /// The claim's transaction was not open any more. If its row is committed, so is what the handler wrote before:
    /// the key is closed until a person looks, and this fails (H29). Otherwise nothing was kept.
    async fn close_key(&self) -> Result<(), Error> {
        let closing = undisturbed(self.ending.clone().close_key());
        let error = match timeout(self.ending.store.settle_timeout, closing).await {
            Ok(Ok(false)) => return Ok(()),
            Ok(Ok(true)) => Error::new(ErrorKind::TransactionEnded),
            Ok(Err(error)) => Error::with_source(ErrorKind::TransactionEnded, error),
            Err(elapsed) => Error::with_source(ErrorKind::TransactionEnded, elapsed),
        };
        emit_error(Event::TransactionEnded, &error);
        Err(error)
    }

    /// The connection was lost in COMMIT: the claim's random token tells whether its answer is stored (case T15).
    async fn learn_outcome(&self, lost: Option<sqlx::Error>) -> Result<Settled, Error> {
        for pause in LOOKS {
            sleep(pause).await;
            let look = find_own(Arc::clone(&self.ending.store), self.ending.request.clone());
            if matches!(timeout(Duration::from_secs(1), undisturbed(look)).await, Ok(Ok(true))) {
                return Ok(Settled::Recorded);
            }
        }
        Err(match lost {
            Some(error) => Error::with_source(ErrorKind::NotRecorded, error),
            None => ErrorKind::NotRecorded.into(),
        })
    }

    /// Runs the end of a transaction. One that takes too long is given up, and its session ended.
    async fn in_time(&self, end: impl Future<Output = End> + Send + 'static) -> End {
        let limit = self.ending.store.settle_timeout;
        undisturbed(timeout(limit, end)).await.unwrap_or_else(|_| {
            self.ending.session.end_in_background();
            End::Unknown(None)
        })
    }
}

async fn find_own(store: Arc<Shared>, request: ClaimRequest) -> Result<bool, sqlx::Error> {
    let mut transaction = begin(&store.pool, sql::BEGIN_OWN).await?;
    store.statements.find_own(&mut transaction, request.lookup(), request.token()).await
}

impl Claim for MySqlClaim {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.slot));
    }

    fn take_back(&mut self) -> Result<(), Error> {
        self.slot.check_returned()
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        let transaction = match self.slot.close() {
            Closed::Intact(transaction) => transaction,
            Closed::Ended(transaction) => {
                self.in_time(Box::pin(self.ending.clone().leave(transaction))).await;
                let gone = self.without_record(End::Gone).await;
                return match (settlement, gone) {
                    (Settlement::Abandon, Err(error)) if error.kind() == ErrorKind::TransactionAborted => {
                        Ok(Settled::Recorded)
                    }
                    (_, gone) => gone,
                };
            }
            Closed::Held | Closed::Unbegun => return Err(ErrorKind::HeldTransaction.into()),
        };
        match settlement {
            Settlement::Commit(kept) => self.commit(transaction, &kept).await,
            Settlement::Refuse(kept) => self.refuse(transaction, &kept).await,
            // Only leases are dispatched: a transaction holds nothing outside itself.
            Settlement::Abandon | Settlement::Unknown => self.abandon(transaction).await,
        }
    }
}

impl RollbackOnDrop for MySqlClaim {}

impl fmt::Debug for MySqlClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlClaim").field("lookup", self.ending.request.lookup()).finish_non_exhaustive()
    }
}
