//! A message's transaction from its begin to its end, in pieces: for services that call their handler themselves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::message::is_same;
use super::pace::Pace;
use super::running::Place;
use super::{Inbox, InboxDialect, InboxTx, Message, Shared};
use crate::db::inbox::{Lent, Met, Own, Rows, Whose};
use crate::db::slot::{Closed, Slot, Start, Starting};
use crate::db::{Tx, TxError};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, Of};

/// How long the end of a transaction may take: a server that has stopped answering must not hold up a consumer.
const END: Duration = Duration::from_secs(10);

/// What an inbox says to a message for which it was to begin a transaction.
#[must_use]
pub enum Opened<DB: InboxDialect> {
    /// It is here for the first time.
    First(First<DB>),
    /// It was processed.
    Duplicate,
    /// Somebody processes it just now.
    Busy {
        /// When to have it delivered again, as advice.
        retry_after: Duration,
    },
    /// Another payload was processed under this id.
    Conflict,
    /// It has failed more often than [`poison_after`](super::InboxBuilder::poison_after) allows.
    Poison,
}

/// A message that is being processed for the first time, with its transaction. Dropped, it is rolled back.
#[must_use = "dropped, it is rolled back"]
pub struct First<DB: InboxDialect> {
    // Ended before the place is given back.
    slot: Arc<Slot<DB>>,
    lending: Arc<Lending<DB>>,
    place: Arc<Place>,
    own: Own,
    attempt: Option<u64>,
}

/// What a transaction needs to be ended in its own way.
struct Lending<DB: InboxDialect> {
    shared: Arc<Shared<DB>>,
    session: <DB::Inbox as Rows>::Session,
}

impl<DB: InboxDialect> Lending<DB> {
    fn lent(&self, transaction: sqlx::Transaction<'static, DB>) -> Lent<DB::Inbox> {
        Lent { transaction, session: self.session.clone() }
    }
}

impl<DB: InboxDialect> Start<DB> for Lending<DB> {
    fn start(self: Arc<Self>) -> Starting<DB> {
        // It was begun before it was lent.
        Box::pin(async { Err(ErrorKind::HeldTransaction.into()) })
    }

    fn discard(self: Arc<Self>, transaction: sqlx::Transaction<'static, DB>) {
        self.shared.rows.discard(self.lent(transaction));
    }
}

impl<DB: InboxDialect> Inbox<DB> {
    /// Begins a transaction and accepts the message in it: the first half of [`Inbox::process`]. Where it is busy, it waits
    /// as long as [`wait_up_to`](super::InboxBuilder::wait_up_to) says, without a transaction.
    ///
    /// # Errors
    /// As for [`Inbox::accept`]; nothing was kept.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn open(&self, message: &Message) -> Result<Opened<DB>, Error> {
        self.open_at(None, message).await
    }

    /// At a place that the message has already, or at one that it must get first.
    pub(super) async fn open_at(&self, place: Option<Arc<Place>>, message: &Message) -> Result<Opened<DB>, Error> {
        let mut pace = Pace::new(self.shared.wait);
        loop {
            let opened = self.open_now(place.clone(), message).await?;
            let is_busy = matches!(opened, Opened::Busy { .. });
            if !is_busy || !pace.wait().await {
                opened.tell(self.shared.of());
                return Ok(opened);
            }
        }
    }

    async fn open_now(&self, place: Option<Arc<Place>>, message: &Message) -> Result<Opened<DB>, Error> {
        let shared = &self.shared;
        let busy = Opened::Busy { retry_after: shared.retry_after };
        // Before a connection is asked for: what runs here keeps nobody waiting.
        let Some(place) = place.or_else(|| shared.running.enter(message.id()).map(Arc::new)) else { return Ok(busy) };
        let Lent { transaction, session } = shared.rows.lend().await?;
        let lending = Arc::new(Lending { shared: Arc::clone(shared), session });
        let slot = Slot::begun_by(transaction, Arc::clone(&lending) as _);
        let mut new = shared.mark(message);
        let mut tx = Tx::lent_by(&slot).await.map_err(begun)?;
        let met = shared.rows.accept(&mut tx, std::slice::from_ref(&new), Whose::Own).await?.pop();
        match met {
            Some(Met::Nothing(place)) => new.own.place = place,
            Some(Met::Mark(stored)) => {
                return Ok(if is_same(stored.as_deref(), message) { Opened::Duplicate } else { Opened::Conflict });
            }
            Some(Met::Rival) | None => return Ok(busy),
        }
        let attempt = shared.attempt(&mut tx, message, &new.own).await?;
        drop(tx);
        let first = First { slot, lending, place, own: new.own, attempt };
        if shared.is_poison(attempt) {
            // Waited for, since its mark would make the next delivery busy.
            first.abandon().await;
            return Ok(Opened::Poison);
        }
        Ok(Opened::First(first))
    }
}

impl<DB: InboxDialect> Opened<DB> {
    /// Names what was told in logs and counters.
    pub(super) fn tell(&self, of: Of<'_>) {
        of.emit(match self {
            // It is told when it is committed or not.
            Self::First(_) => return,
            Self::Duplicate => Event::MessageDuplicate,
            Self::Busy { .. } => Event::MessageBusy,
            Self::Conflict => Event::MessageConflict,
            Self::Poison => Event::MessagePoison,
        });
    }
}

/// A transaction that was just begun can be taken.
fn begun(error: TxError) -> Error {
    Error::with_source(ErrorKind::Unavailable, error)
}

impl<DB: InboxDialect> First<DB> {
    /// The transaction, for the handler: one at a time. It is yours, so the handler's future need not borrow anything.
    ///
    /// # Errors
    /// [`TxError::AlreadyTaken`] while the one before is out, [`TxError::Ended`] where it was ended by hand.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the transaction takeable.
    pub async fn tx(&self) -> Result<InboxTx<DB>, TxError> {
        let tx = Tx::lent_by(&self.slot).await?;
        Ok(InboxTx::new(tx, Arc::clone(&self.place), self.attempt))
    }

    /// Which attempt at this message it is, counted from 1. `None` where nobody counts.
    #[must_use]
    pub fn attempt(&self) -> Option<u64> {
        self.attempt
    }

    /// Commits what the handler wrote, together with the mark (M4).
    ///
    /// # Errors
    /// In every case but the last nothing was kept, and the message can be delivered again:
    /// - [`ErrorKind::HeldTransaction`]: the handler's [`InboxTx`] is still out. The message stays busy until it is dropped.
    /// - [`ErrorKind::TransactionAborted`], [`ErrorKind::CommitRefused`]: a swallowed error, a deferred constraint.
    /// - [`ErrorKind::TransactionEnded`]: the handler, or a deadlock that it has swallowed, has ended the transaction. What
    ///   a handler has committed by hand is kept, its mark with it.
    /// - [`ErrorKind::Conflict`], [`ErrorKind::Unavailable`]: the same message may succeed a little later.
    /// - [`ErrorKind::NotRecorded`]: the connection was lost in COMMIT. The redelivery learns what became of it.
    ///
    /// # Cancel safety
    /// Dropped, it is committed or undone; the redelivery learns which.
    pub async fn commit(self) -> Result<(), Error> {
        let rows = &self.lending.shared.rows;
        let (error, lent) = match self.slot.close() {
            Closed::Intact(transaction) => {
                match timeout(END, rows.commit(self.lending.lent(transaction), &self.own)).await {
                    Ok(Ok(())) => {
                        self.lending.shared.of().emit(Event::MessageProcessed);
                        return Ok(());
                    }
                    Ok(Err(uncommitted)) => (uncommitted.error, uncommitted.lent),
                    Err(elapsed) => (Error::with_source(ErrorKind::NotRecorded, elapsed), None),
                }
            }
            Closed::Ended(transaction) => (ErrorKind::TransactionEnded.into(), Some(self.lending.lent(transaction))),
            Closed::Held | Closed::Unbegun => (ErrorKind::HeldTransaction.into(), None),
        };
        if let Some(lent) = lent {
            self.undo(lent, is_failure(error.kind())).await;
        }
        self.lending.shared.of().emit_error(Event::MessageFailed, &error);
        Err(error)
    }

    /// Rolls back because the handler has failed, and counts that, where failures are counted here (M6).
    ///
    /// # Cancel safety
    /// Dropped, it is rolled back; the failure may not be counted.
    pub async fn fail(self) {
        self.lending.shared.of().emit(Event::MessageFailed);
        self.end(true).await;
    }

    /// Rolls back without counting a failure: the message was not tried.
    ///
    /// # Cancel safety
    /// Dropped, it is rolled back.
    pub async fn abandon(self) {
        self.end(false).await;
    }

    async fn end(self, failed: bool) {
        match self.slot.close() {
            Closed::Intact(transaction) | Closed::Ended(transaction) => {
                self.undo(self.lending.lent(transaction), failed).await;
            }
            // It is rolled back when it comes back.
            Closed::Held | Closed::Unbegun => {}
        }
    }

    async fn undo(&self, lent: Lent<DB::Inbox>, failed: bool) {
        let shared = &self.lending.shared;
        // Where nobody asks for the count nothing is written. A broker's own count need not be complete, so it spares none.
        let counts = failed && shared.poison_after.is_some();
        let failed = counts.then_some(&self.own);
        match timeout(END, shared.rows.undo(lent, failed)).await {
            Ok(Ok(())) => {}
            // On a connection that does not answer the server rolls back, when it finds out.
            Ok(Err(error)) => shared.of().emit_error(Event::MessageNotCounted, &DB::Inbox::error(error)),
            Err(elapsed) => {
                shared.of().emit_error(Event::MessageNotCounted, &Error::with_source(ErrorKind::Unavailable, elapsed));
            }
        }
    }
}

/// Whether a commit failed by what the handler did, and would so again.
fn is_failure(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::TransactionAborted | ErrorKind::TransactionEnded | ErrorKind::CommitRefused)
}

impl<DB: InboxDialect> fmt::Debug for Opened<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(first) => f.debug_tuple("First").field(first).finish(),
            Self::Duplicate => f.write_str("Duplicate"),
            Self::Busy { retry_after } => f.debug_struct("Busy").field("retry_after", retry_after).finish(),
            Self::Conflict => f.write_str("Conflict"),
            Self::Poison => f.write_str("Poison"),
        }
    }
}

impl<DB: InboxDialect> fmt::Debug for First<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("First")
            .field("id", &self.own.identity.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
