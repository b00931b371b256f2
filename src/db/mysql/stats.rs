//! How the tables stand on MySQL and MariaDB: texts and how they are read.

use sqlx::mysql::MySqlRow;
use sqlx::{Connection, MySqlPool, Row};

use super::call::Bound;
use super::sql::{REOPEN_COMMITTED, REOPEN_DIRTY, ROLLBACK};
use crate::db::inbox::Stood;
use crate::db::sql::{SchemaName, expand};
use crate::db::stats::{self, limit};
use crate::store::{Count, KeyStats};

/// Counts no further than the limit, by the index of the times. Parameter: limit.
macro_rules! expired {
    ($table:literal) => {
        concat!(
            "(SELECT COUNT(*) FROM (SELECT 1 FROM {schema}",
            $table,
            " WHERE expires_at <= UTC_TIMESTAMP(6) LIMIT ?) AS old) AS expired, \
             (SELECT TIMESTAMPDIFF(MICROSECOND, MIN(expires_at), UTC_TIMESTAMP(6)) FROM {schema}",
            $table,
            " WHERE expires_at <= UTC_TIMESTAMP(6)) AS overdue"
        )
    };
}

/// What the server believes. Parameter: database.
macro_rules! estimate {
    ($table:literal) => {
        concat!(
            "(SELECT CAST(TABLE_ROWS AS SIGNED) FROM information_schema.TABLES \
              WHERE TABLE_SCHEMA = ? AND TABLE_NAME = '",
            $table,
            "') AS estimate"
        )
    };
}

/// Parameters: 1 database, 2 and 3 limit.
const KEYS: &str = concat!(
    "SELECT COUNT(*) AS records, COUNT(CASE WHEN live AND state = 1 THEN 1 END) AS completed, \
        COUNT(CASE WHEN live AND state <> 1 THEN 1 END) AS orphaned, COUNT(CASE WHEN state = 0 THEN 1 END) AS running, ",
    estimate!("idempotency_keys"),
    ", ",
    expired!("idempotency_keys"),
    " FROM (SELECT state, expires_at > UTC_TIMESTAMP(6) AS live FROM {schema}idempotency_keys LIMIT ?) AS looked"
);

/// Rows that say that they run, for a reader of what is not committed. Parameter: 1 limit.
const PEEK_RUNNING: &str = "SELECT COUNT(CASE WHEN state = 0 THEN 1 END) AS running \
    FROM (SELECT state FROM {schema}idempotency_keys LIMIT ?) AS looked";

/// Parameters: 1 database, 2 to 4 limit.
const LEASES: &str = concat!(
    "SELECT looked.*, open.*, ",
    estimate!("idempotency_leases"),
    ", ",
    expired!("idempotency_leases"),
    " FROM (SELECT COUNT(*) AS records, COUNT(CASE WHEN live AND state = 1 THEN 1 END) AS completed FROM (\
            SELECT state, expires_at > UTC_TIMESTAMP(6) AS live FROM {schema}idempotency_leases LIMIT ?) AS seen) AS looked, \
        (SELECT COUNT(*) AS open, COUNT(CASE WHEN live AND NOT ended THEN 1 END) AS running, \
            COUNT(CASE WHEN live AND ended AND NOT held THEN 1 END) AS lapsed, \
            COUNT(CASE WHEN live AND ended AND held THEN 1 END) AS `unknown` FROM (\
            SELECT held, locked_until <= UTC_TIMESTAMP(6) AS ended, expires_at > UTC_TIMESTAMP(6) AS live \
            FROM {schema}idempotency_leases WHERE state = 0 ORDER BY accepted_at LIMIT ?) AS seen) AS open"
);

/// Parameters: 1 and 2 limit, 3 database, 4 limit.
const INBOX: &str = concat!(
    "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM {schema}idempotency_inbox LIMIT ?) AS looked) AS records, \
        (SELECT COUNT(*) FROM (SELECT 1 FROM {schema}idempotency_inbox_failures LIMIT ?) AS looked) AS failing, ",
    estimate!("idempotency_inbox"),
    ", ",
    expired!("idempotency_inbox")
);

/// Parameter: the consumer before.
const NEXT_CONSUMER: &str =
    "SELECT consumer FROM {schema}idempotency_inbox WHERE consumer > ? ORDER BY consumer LIMIT 1";

/// Parameters: 1 consumer, 2 limit.
const CONSUMER: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM {schema}idempotency_inbox WHERE consumer = ? LIMIT ?) AS looked";

fn query(text: &'static str, schema: &SchemaName) -> Bound {
    sqlx::query(expand(text, Some(schema))).persistent(false)
}

/// On a connection that does not go back to the pool: however long it takes, nothing of it is left on one.
pub(crate) async fn keys(pool: &MySqlPool, schema: &SchemaName, most: u64) -> Result<KeyStats, sqlx::Error> {
    let mut own = pool.acquire().await?.detach();
    sqlx::raw_sql(REOPEN_DIRTY).execute(&mut own).await?;
    let peek = query(PEEK_RUNNING, schema).bind(limit(most)).fetch_one(&mut own).await?;
    // What is committed meanwhile is seen by the second look, as what it is.
    sqlx::raw_sql(REOPEN_COMMITTED).execute(&mut own).await?;
    let look = query(KEYS, schema).bind(schema.as_str().to_owned()).bind(limit(most)).bind(limit(most));
    let row = look.fetch_one(&mut own).await?;
    sqlx::raw_sql(ROLLBACK).execute(&mut own).await?;
    let _ = own.close().await;
    let mut stats = stats::keys(&row, most)?;
    let open = stats::number(&peek, "running")?.saturating_sub(stats::number(&row, "running")?);
    stats.running = matches!(stats.records, Count::Exactly(_)).then_some(Count::Exactly(open));
    Ok(stats)
}

pub(crate) async fn leases(pool: &MySqlPool, schema: &SchemaName, most: u64) -> Result<KeyStats, sqlx::Error> {
    let look = query(LEASES, schema).bind(schema.as_str().to_owned());
    let row = look.bind(limit(most)).bind(limit(most)).bind(limit(most)).fetch_one(pool).await?;
    stats::leases(&row, most)
}

pub(crate) async fn inbox(pool: &MySqlPool, schema: &SchemaName, most: u64) -> Result<Stood, sqlx::Error> {
    let look = query(INBOX, schema).bind(limit(most)).bind(limit(most)).bind(schema.as_str().to_owned());
    let row = look.bind(limit(most)).fetch_one(pool).await?;
    Ok(Stood { marks: stats::kept(&row, most)?, failing: Count::up_to(most, stats::number(&row, "failing")?) })
}

/// The name of the consumer that follows in the order of bytes, and its marks.
pub(crate) async fn consumer(
    pool: &MySqlPool,
    schema: &SchemaName,
    after: &[u8],
    most: u64,
) -> Result<Option<(Vec<u8>, Count)>, sqlx::Error> {
    let next: Option<MySqlRow> = query(NEXT_CONSUMER, schema).bind(after.to_vec()).fetch_optional(pool).await?;
    let Some(row) = next else { return Ok(None) };
    let name: Vec<u8> = row.try_get(0)?;
    let row = query(CONSUMER, schema).bind(name.clone()).bind(limit(most)).fetch_one(pool).await?;
    Ok(Some((name, Count::up_to(most, row.try_get::<i64, _>(0)?.unsigned_abs()))))
}
