//! The only place that begins a transaction.
//!
//! sqlx 0.9 does not survive a dropped `begin`: the BEGIN may reach the server while sqlx counts no transaction, and
//! the connection goes back to the pool inside one that nobody will end (launchbadge/sqlx#4385, #4393; case T09).
//! So a BEGIN is polled to its end. Whoever asked may be dropped; a task finishes it and rolls back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use sqlx::Transaction;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "testing"))]
use sqlx::{Pool, SqlSafeStr};
use tokio::runtime::Handle;

use super::Dialect;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::slot::unwind;

/// A connection of the pool with an open transaction.
///
/// # Cancel safety
/// Waiting for the connection is cut at once; a BEGIN under way is finished and rolled back by a task of its own.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "testing"))]
pub(crate) async fn begin<DB: Dialect>(
    pool: &Pool<DB>,
    statement: impl SqlSafeStr + Send,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    let connection = pool.acquire().await?;
    let statement = statement.into_sql_str();
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    undisturbed(async move { Transaction::begin(connection, Some(statement)).await }).await
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

/// Work on a connection that goes on to its end, whatever becomes of whoever asked for it. A statement that is dropped
/// while sqlx prepares it on MySQL leaves answers in the connection that the next statement takes for its own.
///
/// It runs where it is asked for and costs no task; only what is dropped half-way becomes one. Kept without being polled
/// it stands still, with all that it holds. Not an `async fn`, whose future would hold the work beside its box.
///
/// # Cancel safety
/// The work goes on, and what it makes is dropped in the end.
pub(crate) fn undisturbed<F>(work: F) -> Undisturbed<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    Undisturbed { runtime: Handle::current(), work: Some(Box::pin(work)) }
}

pub(crate) struct Undisturbed<F: Future<Output: Send> + Send + 'static> {
    /// Of whoever asked: it may be dropped elsewhere.
    runtime: Handle,
    /// Absent once it is done, or has panicked.
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> Future for Undisturbed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Undisturbed<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            // What the work drops may want its runtime.
            let _entered = self.runtime.enter();
            // Detached. Where the runtime is shutting down, the work is dropped.
            drop(self.runtime.spawn(work));
        }
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
