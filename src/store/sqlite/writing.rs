//! An open write transaction, its turn, and how the two end together.

use std::sync::Arc;

use sqlx::{Database, Sqlite, SqliteConnection, Transaction};
use sqlx_core::transaction::TransactionManager;

use super::lending::Lending;
use super::shared::own_error;
use super::turn::Turn;
use crate::db::begin::{begin_in_turn, mend, roll_back};
use crate::db::slot::depth;
use crate::db::sqlite::wait::acquire;
use crate::db::sqlite::{names_nothing, sql, statements};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};

type Tx = Transaction<'static, Sqlite>;

/// Dropped, it is undone by a task of the store, and the turn passes on only then.
pub(super) struct Writing {
    lending: Arc<Lending>,
    transaction: Option<Tx>,
    turn: Option<Turn>,
    /// Once it has been asked.
    intact: Option<bool>,
}

impl Writing {
    pub(super) fn new(lending: Arc<Lending>, transaction: Tx, turn: Option<Turn>) -> Self {
        Self { lending, transaction: Some(transaction), turn, intact: None }
    }

    /// Takes the write lock and turns the announcement into a running row.
    pub(super) async fn begin(lending: Arc<Lending>, turn: Turn) -> Result<Self, Error> {
        let shared = &lending.shared;
        let connection = acquire(&shared.pool, turn.until()).await.map_err(own_error)?;
        let transaction = begin_in_turn(connection, shared.own_wait, turn.until()).await.map_err(own_error)?;
        let mut writing = Self::new(Arc::clone(&lending), transaction, Some(turn));
        if let Some(entry) = &lending.entry {
            let (lookup, token) = (entry.request.lookup(), entry.request.token());
            if !statements::run(writing.connection()?, lookup, token).await.map_err(own_error)? {
                return Err(ErrorKind::LeaseLost.into());
            }
        }
        Ok(writing)
    }

    /// The transaction for the handler; its turn stays with the lending.
    pub(super) fn lend(mut self) -> Result<Tx, Error> {
        if let Some(turn) = self.turn.take() {
            self.lending.keep(turn);
        }
        self.transaction.take().ok_or_else(|| ErrorKind::TransactionEnded.into())
    }

    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection, Error> {
        match &mut self.transaction {
            Some(transaction) => Ok(transaction),
            None => Err(ErrorKind::TransactionEnded.into()),
        }
    }

    /// Whether it is the transaction that was begun, with no savepoint of sqlx's left open (H29).
    pub(super) async fn is_intact(&mut self) -> Result<bool, sqlx::Error> {
        // Asked once: the savepoint that tells is gone then.
        if self.intact.is_none()
            && let Some(transaction) = &mut self.transaction
        {
            self.intact = Some(is_intact(transaction).await?);
        }
        Ok(self.intact == Some(true))
    }

    /// Commits. After an error everything is undone, and the turn is still there for what remains to be done.
    pub(super) async fn commit(mut self) -> Result<(), (sqlx::Error, Option<Turn>)> {
        let Some(mut transaction) = self.transaction.take() else { return Err((sqlx::Error::WorkerCrashed, None)) };
        // Not by sqlx's consuming commit: after a refused one it rolls back without saying when.
        match <Sqlite as Database>::TransactionManager::commit(&mut transaction).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = mend(&mut transaction).await;
                Err((error, self.turn.take().map(Turn::afresh)))
            }
        }
    }

    /// Undoes it, also where it is no longer what was begun, and gives its turn for what remains to be done.
    pub(super) async fn undo(mut self) -> Option<Turn> {
        if let Some(transaction) = self.transaction.take() {
            undo(transaction, self.intact).await;
        }
        self.turn.take().map(Turn::afresh)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Some(mut transaction) = self.transaction.take() else { return };
        let (lending, turn, known) = (Arc::clone(&self.lending), self.turn.take(), self.intact);
        self.lending.shared.spawn(async move {
            let intact = match known {
                None => is_intact(&mut transaction).await.ok(),
                known => known,
            };
            if let (Some(false), Some(entry)) = (intact, &lending.entry) {
                entry.orphaned();
                emit(Event::TransactionEnded);
            }
            undo(transaction, intact).await;
            drop(turn);
            // Last, because its row needs a turn to be taken back.
            drop(lending);
        });
    }
}

async fn is_intact(transaction: &mut Tx) -> Result<bool, sqlx::Error> {
    match sqlx::raw_sql(sql::RELEASE).execute(&mut **transaction).await {
        // Answered, so the depth that the connection's thread counts is current.
        Ok(_) => Ok(depth::<Sqlite>(transaction) == 1),
        Err(error) if names_nothing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn undo(mut transaction: Tx, intact: Option<bool>) {
    // A connection that cannot be mended is of no use to anybody; its pool finds out when it is returned.
    let _ = match intact {
        Some(true) => roll_back(transaction).await,
        _ => mend(&mut transaction).await,
    };
}
