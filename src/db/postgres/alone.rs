//! A statement that stands alone, outside of anybody's transaction.
//!
//! Where the pool has no statement cache a statement is two messages: it is prepared without a name, then run. A pooler in
//! transaction mode may send them to two servers, and the second message would run what somebody else has left there. So
//! there each stands in a transaction of its own.

use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::query::Query;

use super::sql::BEGIN;
use crate::db::begin::begin;

/// What a statement returns. `persistent`: statements stay prepared.
///
/// # Cancel safety
/// Dropped, it is done or not.
pub(crate) async fn fetch(
    pool: &PgPool,
    persistent: bool,
    query: Query<'_, Postgres, PgArguments>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    if persistent {
        return query.fetch_all(pool).await;
    }
    let mut transaction = begin(pool, BEGIN).await?;
    let rows = query.fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(rows)
}

/// How many rows a statement has changed.
///
/// # Cancel safety
/// Dropped, it is done or not.
pub(crate) async fn execute(
    pool: &PgPool,
    persistent: bool,
    query: Query<'_, Postgres, PgArguments>,
) -> Result<u64, sqlx::Error> {
    if persistent {
        return Ok(query.execute(pool).await?.rows_affected());
    }
    let mut transaction = begin(pool, BEGIN).await?;
    let done = query.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(done.rows_affected())
}
