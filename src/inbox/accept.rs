//! Accepting a message in a transaction of the caller's.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::running::Place;
use super::{Inbox, InboxDialect, Message, Shared};
use crate::db::InTransaction;
use crate::db::inbox::{New, Own, Rows};
use crate::error::{Error, ErrorKind};

/// What an inbox says to a message.
#[must_use]
pub enum Accept<DB: InboxDialect> {
    /// It is here for the first time: do what it asks for in this transaction, [`confirm`](Guard::confirm), commit.
    First(Guard<DB>),
    /// It was processed, or accepted earlier in this very transaction.
    Duplicate,
    /// Somebody processes it just now. Nothing was changed, and the transaction can go on.
    Busy {
        /// When to have it delivered again, as advice.
        retry_after: Duration,
    },
    /// Another payload was processed under this id.
    Conflict,
    /// It has failed more often than [`poison_after`](super::InboxBuilder::poison_after) allows.
    Poison,
}

/// A message that was accepted for the first time. While it lives, other deliveries in this process are told so without a
/// connection: keep it until the transaction has ended.
#[must_use = "keep it until the transaction has ended, and confirm it before the commit"]
pub struct Guard<DB: InboxDialect> {
    shared: Arc<Shared<DB>>,
    own: Own,
    _place: Arc<Place>,
}

impl<DB: InboxDialect> Guard<DB> {
    /// Makes sure that this is still the transaction in which the message was accepted, and counts the retention from now.
    /// Call it as the last statement before the commit: MySQL and MariaDB answer a deadlock by undoing the whole
    /// transaction, the mark of the message with it, and what is written afterwards would be permanent at once. Of a batch
    /// that was accepted together one guard is enough.
    ///
    /// # Errors
    /// [`ErrorKind::TransactionEnded`] where it is not: roll back, do not acknowledge. On MySQL and MariaDB the connection
    /// is ended, so that nothing more can be written through it. [`ErrorKind::TransactionAborted`] and its kin where the
    /// statement fails.
    ///
    /// # Cancel safety
    /// Dropped, the transaction must be rolled back.
    pub async fn confirm(&self, tx: &mut impl InTransaction<DB>) -> Result<(), Error> {
        match self.shared.rows.confirm(tx.connection(), &self.own).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ErrorKind::TransactionEnded.into()),
            Err(error) => Err(crate::db::fault::before_commit::<DB>(error)),
        }
    }
}

impl<DB: InboxDialect> Inbox<DB> {
    /// Accepts a message in a transaction of yours: sqlx's, the [`Tx`](crate::Tx) of a guarded request, or an
    /// [`InboxTx`](super::InboxTx). One statement, first or duplicate; it never waits for a rival. On
    /// [`Accept::First`] do the work in the same transaction, call [`Guard::confirm`], and commit. If the work fails, roll
    /// back: the message can then be delivered again.
    ///
    /// - *Postgres*: above READ COMMITTED it runs in a savepoint, which costs three round trips more. What was committed
    ///   after the transaction's snapshot is `Busy` there; a new transaction learns the truth. Where the transaction has no
    ///   `idle_in_transaction_session_timeout` it gets the inbox's.
    /// - *MySQL*: the transaction must be READ COMMITTED; under other levels absent rows lock the gaps around them and
    ///   deliveries deadlock each other. MariaDB takes any level but READ UNCOMMITTED, where a mark that is not committed
    ///   would count.
    /// - *SQLite*: the transaction must be begun by `BEGIN IMMEDIATE`, since one that reads first may find that it cannot
    ///   write any more.
    ///
    /// Do not wait in the transaction for a `Busy` message: [`process`](Inbox::process) can wait without one.
    ///
    /// # Errors
    /// - [`ErrorKind::TransactionLost`]: the database has ended the transaction. Nothing more can be written in it.
    /// - [`ErrorKind::NotAWriter`]: a transaction of SQLite that was not begun by `BEGIN IMMEDIATE`.
    /// - [`ErrorKind::TransactionAborted`]: a statement before has failed, on Postgres.
    /// - [`ErrorKind::Setup`]: the tables are missing; [`ErrorKind::Unavailable`]: roll back and try again.
    ///
    /// # Cancel safety
    /// Dropped half-way, the message may be marked in the transaction without your knowing: roll it back.
    pub async fn accept(&self, tx: &mut impl InTransaction<DB>, message: &Message) -> Result<Accept<DB>, Error> {
        let mut told = self.accept_all(tx, slice::from_ref(message)).await?;
        match told.pop() {
            Some(told) => Ok(told),
            None => unreachable!("one answer for each message"),
        }
    }
}

impl<DB: InboxDialect> Shared<DB> {
    pub(super) fn mark(&self, message: &Message) -> New {
        let own = Own {
            identity: self.identity(message.id()),
            token: Uuid::new_v4().into_bytes(),
            retention: self.retention,
            place: None,
        };
        New { own, digest: message.payload() }
    }

    pub(super) fn guard(self: &Arc<Self>, own: Own, place: Place) -> Guard<DB> {
        Guard { shared: Arc::clone(self), own, _place: Arc::new(place) }
    }

    /// Which attempt it is, where somebody counts (M6).
    pub(super) async fn attempt(
        &self,
        connection: &mut <DB as sqlx::Database>::Connection,
        message: &Message,
        own: &Own,
    ) -> Result<Option<u64>, Error> {
        match (message.deliveries(), self.poison_after) {
            (Some(deliveries), _) => Ok(Some(deliveries)),
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let failures = self.rows.failures(connection, &own.identity).await.map_err(DB::Inbox::error)?;
                Ok(Some(failures + 1))
            }
        }
    }

    pub(super) fn is_poison(&self, attempt: Option<u64>) -> bool {
        match (attempt, self.poison_after) {
            (Some(attempt), Some(limit)) => attempt > u64::from(limit.get()),
            _ => false,
        }
    }
}

impl<DB: InboxDialect> fmt::Debug for Accept<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(_) => f.write_str("First(..)"),
            Self::Duplicate => f.write_str("Duplicate"),
            Self::Busy { retry_after } => f.debug_struct("Busy").field("retry_after", retry_after).finish(),
            Self::Conflict => f.write_str("Conflict"),
            Self::Poison => f.write_str("Poison"),
        }
    }
}

impl<DB: InboxDialect> fmt::Debug for Guard<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("id", &self.own.identity.id).finish_non_exhaustive()
    }
}
