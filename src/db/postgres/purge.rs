//! One batch of a purger: a transaction under the lock of the purge (S31).

use sha2::{Digest, Sha256};
use sqlx::postgres::PgPool;
use sqlx::{Postgres, Row, SqlStr, Transaction};

use super::sql;
use crate::db::begin::begin;
use crate::db::sql::SchemaName;
use crate::purge::Batch;

/// The lock belongs to the transaction: a session's own would be left with a connection of a pooler. `None`: another purger
/// has it.
///
/// # Cancel safety
/// Dropped, everything is rolled back.
pub(crate) async fn begin_alone(
    pool: &PgPool,
    schema: &SchemaName,
    persistent: bool,
) -> Result<Option<Transaction<'static, Postgres>>, sqlx::Error> {
    let mut transaction = begin(pool, sql::BEGIN).await?;
    let lock = sqlx::query_scalar(sql::LOCK_PURGE).bind(lock_of(schema)).persistent(persistent);
    let got: bool = lock.fetch_one(&mut *transaction).await?;
    Ok(got.then_some(transaction))
}

/// The tables of these texts in turn, up to so many rows together.
///
/// # Cancel safety
/// Dropped, it is done or undone.
pub(crate) async fn batch(
    pool: &PgPool,
    schema: &SchemaName,
    persistent: bool,
    texts: &[&SqlStr],
    limit: u32,
) -> Result<Batch, sqlx::Error> {
    let Some(mut transaction) = begin_alone(pool, schema, persistent).await? else { return Ok(Batch::Busy) };
    let mut done = Batch::NOTHING;
    for text in texts {
        // Planned anew: a plan for any limit reads the whole table.
        let purge = sqlx::query((*text).clone()).bind(i64::from(done.room_in(limit))).persistent(false);
        let rows = purge.fetch_all(&mut *transaction).await?;
        let overdue: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        done = done.and(Batch::of(overdue));
    }
    transaction.commit().await?;
    Ok(done)
}

/// Templates, for tests of plans.
#[cfg(feature = "testing")]
pub(crate) const TEXTS: [&str; 5] = [
    sql::PURGE,
    super::lease::sql::PURGE,
    super::inbox::sql::PURGE,
    super::inbox::sql::PURGE_FAILURES,
    super::outbox::sql::PURGE_DEAD,
];

fn lock_of(schema: &SchemaName) -> i64 {
    let digest: [u8; 32] =
        Sha256::new().chain_update(b"idempotency/purge/1\0").chain_update(schema.as_str()).finalize().into();
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = digest;
    i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
}
