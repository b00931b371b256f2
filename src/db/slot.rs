//! Where a transaction stands between the claim, which owns it, and the handler, which borrows it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::{Database, Transaction};
use sqlx_core::transaction::TransactionManager;

use super::{Dialect, TxError};
use crate::error::{Error, ErrorKind};

/// A transaction's begin as a future of its own.
pub(crate) type Starting<DB> = Pin<Box<dyn Future<Output = Result<Transaction<'static, DB>, Error>> + Send>>;

/// A transaction that begins when it is first taken.
pub(crate) trait Start<DB: Dialect>: Send + Sync {
    /// Begins it. Dropping the future leaves nothing begun.
    fn start(self: Arc<Self>) -> Starting<DB>;

    /// Undoes one whose claim is gone, without waiting for it.
    fn discard(self: Arc<Self>, transaction: Transaction<'static, DB>) {
        discard(transaction);
    }
}

/// Holds the transaction while nobody uses it.
pub(crate) struct Slot<DB: Dialect> {
    cell: Mutex<Cell<DB>>,
    /// Begins the transaction, and discards it. `None` where it was begun with the claim and is discarded like any other.
    start: Option<Arc<dyn Start<DB>>>,
}

enum Cell<DB: Dialect> {
    /// Not begun: nobody has taken it yet.
    Unbegun,
    Idle(Transaction<'static, DB>),
    /// With a `Tx`, or on its way to one.
    Lent,
    /// Came back without being the transaction that went out (H29).
    Ended(Transaction<'static, DB>),
    /// The claim is over; what still comes back is rolled back.
    Closed,
}

/// What the claim finds when it closes the slot.
pub(crate) enum Closed<DB: Dialect> {
    Unbegun,
    Intact(Transaction<'static, DB>),
    Ended(Transaction<'static, DB>),
    Held,
}

impl<DB: Dialect> Slot<DB> {
    #[cfg(any(feature = "postgres", feature = "testing"))]
    pub(crate) fn begun(transaction: Transaction<'static, DB>) -> Arc<Self> {
        Arc::new(Self { cell: Mutex::new(Cell::Idle(transaction)), start: None })
    }

    /// One that was begun already and must be discarded in a way of its own.
    pub(crate) fn begun_by(transaction: Transaction<'static, DB>, start: Arc<dyn Start<DB>>) -> Arc<Self> {
        Arc::new(Self { cell: Mutex::new(Cell::Idle(transaction)), start: Some(start) })
    }

    pub(crate) fn lazy(start: Arc<dyn Start<DB>>) -> Arc<Self> {
        Arc::new(Self { cell: Mutex::new(Cell::Unbegun), start: Some(start) })
    }

    /// Lends the transaction, beginning it if need be.
    pub(crate) async fn take(&self) -> Result<Transaction<'static, DB>, TxError> {
        {
            let mut cell = self.lock();
            match std::mem::replace(&mut *cell, Cell::Lent) {
                Cell::Idle(transaction) => return Ok(transaction),
                Cell::Unbegun => {}
                other => {
                    let error = match &other {
                        Cell::Lent => TxError::AlreadyTaken,
                        _ => TxError::Ended,
                    };
                    *cell = other;
                    return Err(error);
                }
            }
        }
        let mut unbegun = RestoreUnbegun { slot: self, armed: true };
        let start = self.start.clone().ok_or(TxError::Ended)?;
        let transaction = start.start().await.map_err(TxError::Begin)?;
        unbegun.armed = false;
        Ok(transaction)
    }

    /// Puts a transaction back, without I/O: its depth tells whether sqlx itself has ended it (H29).
    pub(crate) fn put_back(&self, transaction: Transaction<'static, DB>) {
        let mut cell = self.lock();
        match &*cell {
            Cell::Lent if depth::<DB>(&transaction) == 1 => *cell = Cell::Idle(transaction),
            Cell::Lent => *cell = Cell::Ended(transaction),
            _ => {
                drop(cell);
                self.discard(transaction);
            }
        }
    }

    /// Whether the transaction is out. Called when the handler has returned.
    pub(crate) fn check_returned(&self) -> Result<(), Error> {
        match &*self.lock() {
            Cell::Lent => Err(ErrorKind::HeldTransaction.into()),
            _ => Ok(()),
        }
    }

    /// Ends the lending.
    pub(crate) fn close(&self) -> Closed<DB> {
        match std::mem::replace(&mut *self.lock(), Cell::Closed) {
            Cell::Unbegun => Closed::Unbegun,
            Cell::Idle(transaction) => Closed::Intact(transaction),
            Cell::Ended(transaction) => Closed::Ended(transaction),
            Cell::Lent | Cell::Closed => Closed::Held,
        }
    }

    fn discard(&self, transaction: Transaction<'static, DB>) {
        match &self.start {
            Some(start) => Arc::clone(start).discard(transaction),
            None => discard(transaction),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cell<DB>> {
        // No code that can panic runs under the lock; a poisoned one still holds a whole cell.
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Dialect> Drop for Slot<DB> {
    fn drop(&mut self) {
        match self.close() {
            Closed::Intact(transaction) | Closed::Ended(transaction) => self.discard(transaction),
            Closed::Unbegun | Closed::Held => {}
        }
    }
}

impl<DB: Dialect> fmt::Debug for Slot<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot(..)")
    }
}

/// Makes a slot takeable again when its first taker fails or is dropped while the transaction begins.
struct RestoreUnbegun<'a, DB: Dialect> {
    slot: &'a Slot<DB>,
    armed: bool,
}

impl<DB: Dialect> Drop for RestoreUnbegun<'_, DB> {
    fn drop(&mut self) {
        if self.armed {
            let mut cell = self.slot.lock();
            if matches!(*cell, Cell::Lent) {
                *cell = Cell::Unbegun;
            }
        }
    }
}

/// How many transactions and savepoints sqlx counts on this connection.
pub(crate) fn depth<DB: Dialect>(connection: &DB::Connection) -> usize {
    <DB as Database>::TransactionManager::get_transaction_depth(connection)
}

/// Queues the rollback of every savepoint that was left open, so that what follows ends the transaction itself:
/// sqlx's own drop undoes one level and would return the connection inside a transaction.
pub(crate) fn unwind<DB: Dialect>(transaction: &mut Transaction<'static, DB>) {
    for _ in 1..depth::<DB>(transaction) {
        <DB as Database>::TransactionManager::start_rollback(transaction);
    }
}

/// Rolls a transaction back without waiting for it.
pub(crate) fn discard<DB: Dialect>(mut transaction: Transaction<'static, DB>) {
    unwind(&mut transaction);
}
