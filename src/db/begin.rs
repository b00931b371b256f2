//! The only place that begins a transaction.
//!
//! sqlx 0.9 does not survive a dropped `begin`: the BEGIN may reach the server while sqlx counts no transaction, and
//! the connection goes back to the pool inside one that nobody will end (launchbadge/sqlx#4385, #4393; case T09).
//! So BEGIN runs on a task of its own. Whoever asked may be dropped; the task finishes and rolls back.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use std::future::Future;

use sqlx::Transaction;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "testing"))]
use sqlx::{Pool, SqlSafeStr};

use super::Dialect;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::slot::unwind;

/// A connection of the pool with an open transaction.
///
/// # Cancel safety
/// Waiting for the connection is cut at once; a BEGIN under way is finished and rolled back by its own task.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "testing"))]
pub(crate) async fn begin<DB: Dialect>(
    pool: &Pool<DB>,
    statement: impl SqlSafeStr + Send,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    let connection = pool.acquire().await?;
    let statement = statement.into_sql_str();
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let task = tokio::spawn(async move { Transaction::begin(connection, Some(statement)).await });
    match task.await {
        Ok(begun) => begun,
        // The runtime is shutting down.
        Err(_) => Err(sqlx::Error::WorkerCrashed),
    }
}

/// BEGIN on a connection at hand. Only for work that is [`undisturbed`].
#[cfg(feature = "mysql")]
pub(crate) async fn begin_on<DB: Dialect>(
    connection: sqlx::pool::PoolConnection<DB>,
    statement: impl SqlSafeStr + Send,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    Transaction::begin(connection, Some(statement.into_sql_str())).await
}

/// Runs work on a connection to its end, on a task of its own, whatever becomes of whoever asked for it. A statement
/// that is dropped while sqlx prepares it on MySQL leaves answers in the connection that the next statement takes for
/// its own. Large work comes in a box, so that whoever waits for it stays small.
///
/// # Cancel safety
/// The work goes on, and what it makes is dropped in the end.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) async fn undisturbed<T: Send + 'static>(
    work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
) -> Result<T, sqlx::Error> {
    #[expect(clippy::disallowed_methods, reason = "the task must not end before its connection is in order")]
    let task = tokio::spawn(work);
    match task.await {
        Ok(done) => done,
        // The runtime is shutting down.
        Err(_) => Err(sqlx::Error::WorkerCrashed),
    }
}

/// The same for work that nobody waits for.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn in_background(work: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "the task must not end before its connection is in order")]
    let task = tokio::spawn(work);
    // Detached.
    drop(task);
}

/// Rolls back completely, whatever savepoints were left open, and waits for it, so that an immediate retry finds the
/// key free (S10).
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) async fn roll_back<DB: Dialect>(mut transaction: Transaction<'static, DB>) -> Result<(), sqlx::Error> {
    unwind(&mut transaction);
    transaction.rollback().await
}

#[cfg(feature = "sqlite")]
pub(crate) use sqlite::{begin_in_turn, mend};

#[cfg(feature = "sqlite")]
mod sqlite {
    use sqlx::pool::PoolConnection;
    use sqlx::sqlite::SqliteTransactionManager;
    use sqlx::{SqlSafeStr, Sqlite, SqliteConnection, Transaction};
    use sqlx_core::transaction::TransactionManager;
    use tokio::time::Instant;

    use crate::db::slot::{depth, unwind};
    use crate::db::sql::{busy_timeout, sqlite_depth};
    use crate::db::sqlite::sql;
    use crate::db::sqlite::wait::patiently;

    /// The write lock of a SQLite file as a transaction, with the savepoint in it by which it is recognised later.
    /// `own_wait` is the connection's own busy timeout, off meanwhile.
    ///
    /// # Cancel safety
    /// A wait under way goes on until it succeeds or `until` has passed, and what it has begun is rolled back.
    pub(crate) async fn begin_in_turn(
        mut connection: PoolConnection<Sqlite>,
        own_wait: u32,
        until: Instant,
    ) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        #[expect(clippy::disallowed_methods, reason = "this is the place")]
        let task = tokio::spawn(async move {
            lock(&mut connection, own_wait, until).await?;
            // sqlx counts from here. A savepoint can only fail for want of memory.
            let statement = Some(sql::SAVEPOINT.into_sql_str());
            Transaction::begin(connection, statement).await
        });
        match task.await {
            Ok(begun) => begun,
            Err(_) => Err(sqlx::Error::WorkerCrashed),
        }
    }

    /// BEGIN IMMEDIATE as often as it takes, on one connection: a failed `Transaction::begin` would give it up.
    async fn lock(connection: &mut PoolConnection<Sqlite>, own_wait: u32, until: Instant) -> Result<(), sqlx::Error> {
        if own_wait > 0 {
            run(connection, sql::NO_BUSY_TIMEOUT).await?;
        }
        let locked = patiently!(until, run(connection, sql::BEGIN).await);
        if own_wait > 0
            && let Err(error) = run(connection, busy_timeout(own_wait)).await
        {
            connection.close_on_drop();
            return Err(error);
        }
        locked
    }

    /// Ends whatever a connection is in, after somebody else has ended the transaction that sqlx counts on it: sqlx's
    /// own rollback fails then, and the connection would go back to the pool with a wrong count.
    pub(crate) async fn mend(transaction: &mut Transaction<'static, Sqlite>) -> Result<(), sqlx::Error> {
        // Refused where nothing is open, which is as good. Once answered, sqlx's count is current too.
        let _ = run(transaction, sql::ROLLBACK).await;
        let depth = depth::<Sqlite>(transaction);
        if depth > 0 {
            run(transaction, sqlite_depth(depth)).await?;
        }
        unwind(transaction);
        // Not by sqlx's consuming rollback: the connection may have more to do.
        SqliteTransactionManager::rollback(transaction).await
    }

    async fn run(connection: &mut SqliteConnection, text: impl SqlSafeStr) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(connection).await.map(drop)
    }
}
