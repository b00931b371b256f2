//! How the tables stand in a SQLite file: texts and how they are read. SQLite keeps no count of its own, so nothing is
//! estimated. A reader keeps nobody waiting.

use sqlx::{Row, SqliteConnection};

use super::sql::clock;
use crate::db::inbox::Stood;
use crate::db::stats::{self, limit};
use crate::store::{Count, KeyStats};

/// Counts no further than the limit, by the index of the times.
macro_rules! expired {
    ($from:literal) => {
        concat!(
            "(SELECT count(*) FROM (SELECT 1 FROM ",
            $from,
            " AND expires_at <= ",
            clock!(),
            " LIMIT ?1)) AS expired, (SELECT ",
            clock!(),
            " - min(expires_at) FROM ",
            $from,
            " AND expires_at <= ",
            clock!(),
            ") AS overdue"
        )
    };
}

/// An announced row lives as long as its owner, whatever the clock says. Parameter: 1 limit.
const KEYS: &str = concat!(
    "SELECT count(*) AS records, NULL AS estimate, count(*) FILTER (WHERE live AND state = 1) AS completed, \
        count(*) FILTER (WHERE live AND state IN (0, 2)) AS orphaned, ",
    expired!("idempotency_keys WHERE state <> 3"),
    " FROM (SELECT state, expires_at > ",
    clock!(),
    " AS live FROM idempotency_keys LIMIT ?1)"
);

/// Announced rows among those that are read. Parameter: 1 limit.
const ANNOUNCED: &str = "SELECT token, owner FROM (SELECT state, token, owner FROM idempotency_keys LIMIT ?1) \
    WHERE state = 3";

/// Parameter: 1 limit.
const LEASES: &str = concat!(
    "SELECT looked.*, open.*, NULL AS estimate, ",
    expired!("idempotency_leases WHERE true"),
    " FROM (SELECT count(*) AS records, count(*) FILTER (WHERE live AND state = 1) AS completed FROM (\
            SELECT state, expires_at > ",
    clock!(),
    " AS live FROM idempotency_leases LIMIT ?1)) AS looked, \
        (SELECT count(*) AS open, count(*) FILTER (WHERE live AND NOT ended) AS running, \
            count(*) FILTER (WHERE live AND ended AND NOT held) AS lapsed, \
            count(*) FILTER (WHERE live AND ended AND held) AS unknown FROM (\
            SELECT held, locked_until <= ",
    clock!(),
    " AS ended, expires_at > ",
    clock!(),
    " AS live FROM idempotency_leases WHERE state = 0 ORDER BY accepted_at LIMIT ?1)) AS open"
);

/// Parameter: 1 limit.
const INBOX: &str = concat!(
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM idempotency_inbox LIMIT ?1)) AS records, NULL AS estimate, \
        (SELECT count(*) FROM (SELECT 1 FROM idempotency_inbox_failures LIMIT ?1)) AS failing, ",
    expired!("idempotency_inbox WHERE true")
);

/// Parameter: 1 the consumer before.
const NEXT_CONSUMER: &str = "SELECT consumer FROM idempotency_inbox WHERE consumer > ?1 ORDER BY consumer LIMIT 1";

/// Parameters: 1 limit, 2 consumer.
const CONSUMER: &str = "SELECT count(*) FROM (SELECT 1 FROM idempotency_inbox WHERE consumer = ?2 LIMIT ?1)";

/// Without those that are announced, of which each is told by its token and its owner.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) stats: KeyStats,
    pub(crate) announced: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

pub(crate) async fn keys(connection: &mut SqliteConnection, most: u64) -> Result<Keys, sqlx::Error> {
    let announced = sqlx::query_as(ANNOUNCED).bind(limit(most)).fetch_all(&mut *connection).await?;
    let row = sqlx::query(KEYS).bind(limit(most)).fetch_one(connection).await?;
    Ok(Keys { stats: stats::keys(&row, most)?, announced })
}

pub(crate) async fn leases(connection: &mut SqliteConnection, most: u64) -> Result<KeyStats, sqlx::Error> {
    stats::leases(&sqlx::query(LEASES).bind(limit(most)).fetch_one(connection).await?, most)
}

pub(crate) async fn inbox(connection: &mut SqliteConnection, most: u64) -> Result<Stood, sqlx::Error> {
    let row = sqlx::query(INBOX).bind(limit(most)).fetch_one(connection).await?;
    Ok(Stood { marks: stats::kept(&row, most)?, failing: Count::up_to(most, stats::number(&row, "failing")?) })
}

/// The name of the consumer that follows in the order of bytes, and its marks.
pub(crate) async fn consumer(
    connection: &mut SqliteConnection,
    after: &[u8],
    most: u64,
) -> Result<Option<(Vec<u8>, Count)>, sqlx::Error> {
    let next = sqlx::query(NEXT_CONSUMER).bind(after).fetch_optional(&mut *connection).await?;
    let Some(row) = next else { return Ok(None) };
    let name: Vec<u8> = row.try_get(0)?;
    let counted: i64 = sqlx::query_scalar(CONSUMER).bind(limit(most)).bind(&name[..]).fetch_one(connection).await?;
    Ok(Some((name, Count::up_to(most, counted.unsigned_abs()))))
}
