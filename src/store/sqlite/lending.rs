//! How a handler comes by its transaction: when it first asks, and when it is its turn.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{Sqlite, Transaction};

use super::entry::Entry;
use super::shared::Shared;
use super::turn::Turn;
use super::writing::Writing;
use crate::db::slot::{Start, Starting};

/// The transaction of one request, before, while and after a handler has it.
pub(super) struct Lending {
    pub(super) shared: Arc<Shared>,
    /// `None` for a request without a key.
    pub(super) entry: Option<Entry>,
    /// The turn of the transaction that is in the slot or with the handler.
    turn: Mutex<Option<Turn>>,
}

impl Lending {
    pub(super) fn new(shared: Arc<Shared>, entry: Option<Entry>) -> Arc<Self> {
        Arc::new(Self { shared, entry, turn: Mutex::new(None) })
    }

    pub(super) fn keep(&self, turn: Turn) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
    }

    /// A transaction that comes back, with its turn.
    pub(super) fn reunite(self: Arc<Self>, transaction: Transaction<'static, Sqlite>) -> Writing {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        Writing::new(self, transaction, turn)
    }
}

impl Start<Sqlite> for Lending {
    fn start(self: Arc<Self>) -> Starting<Sqlite> {
        Box::pin(async move {
            let turn = self.shared.turn().await?;
            let shared = Arc::clone(&self.shared);
            // On a task, so that the turn outlives the transaction if the handler is dropped meanwhile.
            let writing = shared.run(Writing::begin(self, turn)).await??;
            writing.lend()
        })
    }

    fn discard(self: Arc<Self>, transaction: Transaction<'static, Sqlite>) {
        drop(self.reunite(transaction));
    }
}
