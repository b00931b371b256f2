//! The only place that begins a transaction.
//!
//! sqlx 0.9 does not survive a dropped `begin`: the BEGIN may reach the server while sqlx counts no transaction, and
//! the connection goes back to the pool inside one that nobody will end (launchbadge/sqlx#4385, #4393; case T09).
//! So BEGIN runs on a task of its own. Whoever asked may be dropped; the task finishes and rolls back.

use sqlx::pool::PoolConnection;
use sqlx::{Pool, SqlSafeStr, Transaction};

use super::Dialect;
use super::slot::unwind;

/// A connection of the pool with an open transaction.
///
/// # Cancel safety
/// Waiting for the connection is cut at once; a BEGIN under way is finished and rolled back by its own task.
pub(crate) async fn begin<DB: Dialect>(
    pool: &Pool<DB>,
    statement: impl SqlSafeStr + Send,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    let connection = pool.acquire().await?;
    begin_on(connection, statement).await
}

/// An open transaction on a connection at hand.
pub(crate) async fn begin_on<DB: Dialect>(
    connection: PoolConnection<DB>,
    statement: impl SqlSafeStr + Send,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    let statement = statement.into_sql_str();
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let task = tokio::spawn(async move { Transaction::begin(connection, Some(statement)).await.map(Begun) });
    match task.await {
        Ok(begun) => begun.map(Begun::into_transaction),
        // The runtime is shutting down.
        Err(_) => Err(sqlx::Error::WorkerCrashed),
    }
}

/// A begun transaction on its way to whoever asked: unclaimed, it is undone whole.
struct Begun<DB: Dialect>(Transaction<'static, DB>);

impl<DB: Dialect> Begun<DB> {
    fn into_transaction(self) -> Transaction<'static, DB> {
        self.0
    }
}

/// Rolls back completely, whatever savepoints were left open, and waits for it, so that an immediate retry finds the
/// key free (S10).
pub(crate) async fn roll_back<DB: Dialect>(mut transaction: Transaction<'static, DB>) -> Result<(), sqlx::Error> {
    unwind(&mut transaction);
    transaction.rollback().await
}
