//! How the tables stand on Postgres: texts and how they are read.

use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};

use super::alone;
use crate::db::inbox::Stood;
use crate::db::sql::{SchemaName, expand};
use crate::db::stats::{self, limit};
use crate::store::{Count, KeyStats};

/// Counts no further than the limit, by the index of the times. The clock is asked once, so that the index is searched.
macro_rules! expired {
    ($table:literal) => {
        concat!(
            "(SELECT count(*) FROM (SELECT FROM {schema}",
            $table,
            " WHERE expires_at <= (SELECT clock_timestamp()) LIMIT $1) AS old) AS expired, \
             (SELECT (extract(epoch FROM clock_timestamp() - min(expires_at)) * 1000000)::int8 FROM {schema}",
            $table,
            " WHERE expires_at <= (SELECT clock_timestamp())) AS overdue"
        )
    };
}

/// What the planner believes; nothing where the table was never analysed.
macro_rules! estimate {
    ($table:literal) => {
        concat!(
            "(SELECT nullif(reltuples, -1)::int8 FROM pg_class WHERE oid = '{schema}",
            $table,
            "'::regclass) AS estimate"
        )
    };
}

/// Parameter: 1 limit.
const KEYS: &str = concat!(
    "SELECT count(*) AS records, count(*) FILTER (WHERE live AND state = 1) AS completed, \
        count(*) FILTER (WHERE live AND state <> 1) AS orphaned, ",
    estimate!("idempotency_keys"),
    ", ",
    expired!("idempotency_keys"),
    " FROM (SELECT state, expires_at > clock_timestamp() AS live FROM {schema}idempotency_keys LIMIT $1) AS looked"
);

/// Parameter: 1 limit.
const LEASES: &str = concat!(
    "SELECT looked.*, open.*, ",
    estimate!("idempotency_leases"),
    ", ",
    expired!("idempotency_leases"),
    " FROM (SELECT count(*) AS records, count(*) FILTER (WHERE live AND state = 1) AS completed FROM (\
            SELECT state, expires_at > clock_timestamp() AS live FROM {schema}idempotency_leases LIMIT $1) AS seen) AS looked, \
        (SELECT count(*) AS open, count(*) FILTER (WHERE live AND NOT ended) AS running, \
            count(*) FILTER (WHERE live AND ended AND NOT held) AS lapsed, \
            count(*) FILTER (WHERE live AND ended AND held) AS unknown FROM (\
            SELECT held, locked_until <= clock_timestamp() AS ended, expires_at > clock_timestamp() AS live \
            FROM {schema}idempotency_leases WHERE state = 0 ORDER BY accepted_at LIMIT $1) AS seen) AS open"
);

/// Parameter: 1 limit.
const INBOX: &str = concat!(
    "SELECT (SELECT count(*) FROM (SELECT FROM {schema}idempotency_inbox LIMIT $1) AS looked) AS records, \
        (SELECT count(*) FROM (SELECT FROM {schema}idempotency_inbox_failures LIMIT $1) AS looked) AS failing, ",
    estimate!("idempotency_inbox"),
    ", ",
    expired!("idempotency_inbox")
);

/// Parameter: 1 the consumer before.
const NEXT_CONSUMER: &str =
    "SELECT consumer FROM {schema}idempotency_inbox WHERE consumer > $1 ORDER BY consumer LIMIT 1";

/// Parameters: 1 limit, 2 consumer.
const CONSUMER: &str =
    "SELECT count(*) FROM (SELECT FROM {schema}idempotency_inbox WHERE consumer = $2 LIMIT $1) AS looked";

/// Who has claimed something and not ended yet: a claim locks its table until it ends, and everybody may see that.
/// Parameter: 1 limit.
const RUNNING: &str = "\
    SELECT count(*) FROM (SELECT DISTINCT pid FROM pg_locks \
        WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid <> pg_backend_pid() \
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
            AND relation = '{schema}idempotency_keys'::regclass LIMIT $1) AS holders";

/// Each is planned anew: a plan for any limit reads the whole table.
fn query(text: &'static str, schema: &SchemaName) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(expand(text, Some(schema))).persistent(false)
}

pub(crate) async fn keys(
    connection: &mut PgConnection,
    schema: &SchemaName,
    most: u64,
) -> Result<KeyStats, sqlx::Error> {
    let row = query(KEYS, schema).bind(limit(most)).fetch_one(&mut *connection).await?;
    let mut stats = stats::keys(&row, most)?;
    let running: i64 = query(RUNNING, schema).bind(limit(most)).fetch_one(connection).await?.try_get(0)?;
    stats.running = Some(Count::up_to(most, running.unsigned_abs()));
    Ok(stats)
}

pub(crate) async fn leases(pool: &PgPool, schema: &SchemaName, most: u64) -> Result<KeyStats, sqlx::Error> {
    stats::leases(&one(pool, query(LEASES, schema).bind(limit(most))).await?, most)
}

pub(crate) async fn inbox(pool: &PgPool, schema: &SchemaName, most: u64) -> Result<Stood, sqlx::Error> {
    let row = one(pool, query(INBOX, schema).bind(limit(most))).await?;
    Ok(Stood { marks: stats::kept(&row, most)?, failing: Count::up_to(most, stats::number(&row, "failing")?) })
}

/// The name of the consumer that follows in the order of bytes, and its marks.
pub(crate) async fn consumer(
    pool: &PgPool,
    schema: &SchemaName,
    after: &[u8],
    most: u64,
) -> Result<Option<(Vec<u8>, Count)>, sqlx::Error> {
    let next = query(NEXT_CONSUMER, schema).bind(after.to_vec());
    let Some(row) = alone::fetch(pool, false, next).await?.pop() else { return Ok(None) };
    let name: Vec<u8> = row.try_get(0)?;
    let counted: i64 = one(pool, query(CONSUMER, schema).bind(limit(most)).bind(name.clone())).await?.try_get(0)?;
    Ok(Some((name, Count::up_to(most, counted.unsigned_abs()))))
}

async fn one(pool: &PgPool, query: Query<'static, Postgres, PgArguments>) -> Result<PgRow, sqlx::Error> {
    alone::fetch(pool, false, query).await?.pop().ok_or(sqlx::Error::RowNotFound)
}
