//! One batch of a purger: a transaction under the lock of the purge (S31).

use sha2::{Digest, Sha256};
use sqlx::{MySqlConnection, MySqlPool, SqlStr};

use super::call::{Work, call, in_transaction, transact};
use super::sql;
use super::statements::purge;
use crate::db::sql::{Hex, SchemaName};
use crate::purge::Batch;

/// Work in a transaction of its own, while this connection has the lock. A named lock belongs to the session: it is freed
/// before the connection goes back, whatever came of the work, or the connection is given up.
///
/// # Cancel safety
/// The work goes on, and frees the lock.
pub(crate) async fn alone(
    pool: &MySqlPool,
    schema: &SchemaName,
    work: impl for<'c> FnOnce(&'c mut MySqlConnection) -> Work<'c, Batch> + Send + 'static,
) -> Result<Batch, sqlx::Error> {
    let name = lock_of(schema);
    call(pool, move |connection| {
        Box::pin(async move {
            let lock = sqlx::query_scalar(sql::LOCK_PURGE).bind(name.clone());
            let got: Option<i64> = lock.fetch_one(&mut *connection).await?;
            if got != Some(1) {
                return Ok(Batch::Busy);
            }
            let done = in_transaction(&mut *connection, work).await;
            let freed = sqlx::query_scalar::<_, Option<i64>>(sql::FREE_PURGE).bind(name).fetch_one(connection).await;
            // Whatever this is, the connection must not be used again.
            if freed.ok().flatten() != Some(1) {
                return Err(sqlx::Error::WorkerCrashed);
            }
            done
        })
    })
    .await
}

/// The tables of these texts in turn, each as what locks and what deletes, up to so many rows together.
///
/// # Cancel safety
/// The batch goes on to its end.
pub(crate) async fn batch(
    pool: &MySqlPool,
    schema: &SchemaName,
    texts: Vec<(SqlStr, SqlStr)>,
    limit: u32,
) -> Result<Batch, sqlx::Error> {
    alone(pool, schema, move |connection| {
        Box::pin(async move {
            let mut done = Batch::NOTHING;
            for (lock, delete) in &texts {
                done = done.and(purge(&mut *connection, lock, delete, done.room_in(limit)).await?);
            }
            Ok(done)
        })
    })
    .await
}

/// Up to so many rows of a table, in transactions of their own, without the lock.
///
/// # Cancel safety
/// The transaction under way goes on to its end.
pub(crate) async fn by_hand(pool: &MySqlPool, lock: &SqlStr, delete: &SqlStr, limit: u32) -> Result<u64, sqlx::Error> {
    let (mut purged, mut left) = (0, limit);
    while left > 0 {
        let (lock, delete, batch) = (lock.clone(), delete.clone(), left.min(BATCH));
        let gone = transact(pool, move |connection| {
            Box::pin(async move { purge(connection, &lock, &delete, batch).await.map(Batch::purged) })
        });
        let gone = gone.await?;
        purged += gone;
        if gone < u64::from(batch) {
            break;
        }
        left -= batch;
    }
    Ok(purged)
}

/// Rows that one transaction of a purge by hand deletes.
const BATCH: u32 = 500;

/// Templates, for tests of plans.
#[cfg(feature = "testing")]
pub(crate) const TEXTS: [&str; 5] = [
    sql::LOCK_EXPIRED,
    super::lease::sql::LOCK_EXPIRED,
    super::inbox::sql::LOCK_EXPIRED,
    super::inbox::sql::LOCK_EXPIRED_FAILURES,
    super::outbox::sql::LOCK_OLD_DEAD,
];

fn lock_of(schema: &SchemaName) -> String {
    let digest: [u8; 32] =
        Sha256::new().chain_update(b"idempotency/mysql-purge/1\0").chain_update(schema.as_str()).finalize().into();
    format!("idem-p:{}", Hex::new(&digest[..24]).as_str())
}
