//! The transaction of a message in its handler's hands.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::Transaction;

use super::running::Place;
use crate::db::in_transaction::open;
use crate::db::{Dialect, Tx};

/// The transaction in which a message was accepted: what is written through it is committed together with the mark that
/// the message was processed, or not at all. It dereferences to the connection, so `&mut *tx` is an executor.
///
/// - Drop it before the handler ends: one that is still out then is an error, and it is rolled back.
/// - Never COMMIT, ROLLBACK or run DDL that commits through it: that is an error as well.
/// - Do not ask the pool for a second connection while you hold it: with a small pool that is a deadlock, and on SQLite a
///   write through the pool waits for this very transaction.
pub struct InboxTx<DB: Dialect> {
    // Given back before the place is.
    tx: Tx<DB>,
    /// So that a message whose transaction outlives its handler still counts as running.
    _place: Arc<Place>,
    attempt: Option<u64>,
}

impl<DB: Dialect> InboxTx<DB> {
    pub(super) fn new(tx: Tx<DB>, place: Arc<Place>, attempt: Option<u64>) -> Self {
        Self { tx, _place: place, attempt }
    }

    /// As sqlx's transaction, for nested transactions: `tx.as_transaction().begin()` is a savepoint.
    pub fn as_transaction(&mut self) -> &mut Transaction<'static, DB> {
        self.tx.as_transaction()
    }

    /// Which attempt at this message it is, counted from 1: by the broker, or by the failures that were counted here.
    /// `None` where nobody counts.
    #[must_use]
    pub fn attempt(&self) -> Option<u64> {
        self.attempt
    }
}

impl<DB: Dialect> open::Open<DB> for InboxTx<DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        &mut self.tx
    }

    fn is_writer(&self) -> bool {
        true
    }
}

impl<DB: Dialect> Deref for InboxTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.tx
    }
}

impl<DB: Dialect> DerefMut for InboxTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.tx
    }
}

impl<DB: Dialect> fmt::Debug for InboxTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxTx").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
