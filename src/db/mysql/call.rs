//! A call of a store's own, which no handler takes part in.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlQueryResult};
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection, MySqlPool};
use tokio::time::timeout;

use super::{Flavor, sql};
use crate::db::begin::undisturbed;

/// How long a call may hold its connection before the connection is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A statement with everything that it needs.
pub(crate) type Bound = Query<'static, MySql, MySqlArguments>;

/// What is done in a call.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'c>>;

/// Runs work on a connection to its end, whatever becomes of whoever asked for it. A connection on which it does not end,
/// or which is broken, does not go back to the pool: a server undoes what was not committed by it.
///
/// # Cancel safety
/// Waiting for the connection is cut at once; the work goes on.
pub(crate) async fn call<T: Send + 'static>(
    pool: &MySqlPool,
    work: impl for<'c> FnOnce(&'c mut MySqlConnection) -> Work<'c, T> + Send + 'static,
) -> Result<T, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    undisturbed(async move {
        let done = timeout(PATIENCE, work(&mut connection)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        if matches!(&done, Err(error) if !matches!(error, sqlx::Error::Database(_))) {
            drop(connection.detach());
        }
        done
    })
    .await
}

/// The same in a transaction under READ COMMITTED, rolled back after an error.
pub(crate) async fn transact<T: Send + 'static>(
    pool: &MySqlPool,
    work: impl for<'c> FnOnce(&'c mut MySqlConnection) -> Work<'c, T> + Send + 'static,
) -> Result<T, sqlx::Error> {
    call(pool, move |connection| Box::pin(in_transaction(connection, work))).await
}

/// The same on a connection at hand. Only for what runs to its end.
pub(super) async fn in_transaction<T>(
    connection: &mut MySqlConnection,
    work: impl for<'c> FnOnce(&'c mut MySqlConnection) -> Work<'c, T>,
) -> Result<T, sqlx::Error> {
    sqlx::raw_sql(sql::BEGIN_OWN).execute(&mut *connection).await?;
    let done = work(&mut *connection).await;
    let end = if done.is_ok() { sql::COMMIT_OWN } else { sql::ROLLBACK };
    sqlx::raw_sql(end).execute(connection).await?;
    done
}

/// Changes one row, and tells whether it was as the change says. On MariaDB the change has the prefix that makes it give
/// up where it would wait; on MySQL `lock` does, before it. Either way an error of a conflict says that somebody has the
/// row.
pub(crate) async fn change_without_waiting(
    pool: &MySqlPool,
    flavor: Flavor,
    lock: Bound,
    change: Bound,
) -> Result<bool, sqlx::Error> {
    match flavor {
        Flavor::NoWait => Ok(is_found(&call(pool, move |connection| Box::pin(change.execute(connection))).await?)),
        Flavor::NamedLock => {
            transact(pool, move |connection| {
                Box::pin(async move {
                    if lock.fetch_optional(&mut *connection).await?.is_none() {
                        return Ok(false);
                    }
                    Ok(is_found(&change.execute(connection).await?))
                })
            })
            .await
        }
    }
}

/// Whether a statement has met its row: sqlx has the server count found rows, changed or not.
pub(crate) fn is_found(done: &MySqlQueryResult) -> bool {
    done.rows_affected() == 1
}
