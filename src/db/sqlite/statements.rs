//! The statements of a SQLite store, with their parameters and results in Rust types.

use std::time::Duration;

use bytes::Bytes;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, Sqlite, SqliteConnection};

use super::sql;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::purge::Batch;
use crate::scope::ScopeId;
use crate::store::Token;
use crate::store::stored::StoredEntry;

pub(crate) const RUNNING: i64 = 0;
pub(crate) const COMPLETED: i64 = 1;
pub(crate) const ORPHANED: i64 = 2;
pub(crate) const ANNOUNCED: i64 = 3;

/// A live row.
pub(crate) struct Seen {
    pub(crate) state: i64,
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) token: Vec<u8>,
    pub(crate) owner: Option<Vec<u8>>,
    pub(crate) answer: Option<Bytes>,
}

/// What an announcement says.
pub(crate) struct Announcement<'a> {
    pub(crate) fingerprint: &'a Fingerprint,
    pub(crate) token: Token,
    pub(crate) owner: &'a [u8],
    pub(crate) retention: Duration,
    /// The announcement that it replaces, whose owner is dead.
    pub(crate) instead_of: Option<&'a [u8]>,
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

fn of<'q>(text: &'static str, lookup: &'q LookupKey) -> Bound<'q> {
    sqlx::query(text).bind(lookup.scope().as_str()).bind(lookup.key().as_str()).bind(lookup.endpoint().as_str())
}

fn owned<'q>(text: &'static str, lookup: &'q LookupKey, token: Token) -> Bound<'q> {
    of(text, lookup).bind(token.as_bytes().to_vec())
}

async fn changed(query: Bound<'_>, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

pub(crate) async fn look(connection: &mut SqliteConnection, lookup: &LookupKey) -> Result<Option<Seen>, sqlx::Error> {
    let Some(row) = of(sql::LOOK, lookup).fetch_optional(connection).await? else { return Ok(None) };
    Ok(Some(Seen {
        state: row.try_get("state")?,
        fingerprint: row.try_get("fingerprint")?,
        token: row.try_get("token")?,
        owner: row.try_get("owner")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
    }))
}

/// Whether the key is the announcer's now.
pub(crate) async fn announce(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    announcement: &Announcement<'_>,
) -> Result<bool, sqlx::Error> {
    let query = of(sql::ANNOUNCE, lookup)
        .bind(announcement.fingerprint.to_bytes().to_vec())
        .bind(announcement.token.as_bytes().to_vec())
        .bind(announcement.owner)
        .bind(microseconds(announcement.retention))
        .bind(announcement.instead_of);
    changed(query, connection).await
}

/// Whether the claim's own announcement is running now.
pub(crate) async fn run(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    token: Token,
) -> Result<bool, sqlx::Error> {
    changed(owned(sql::RUN, lookup, token), connection).await
}

/// Whether exactly the claim's own row, in state `from`, was settled.
pub(crate) async fn settle(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    token: Token,
    from: i64,
    retention: Duration,
    answer: &[u8],
) -> Result<bool, sqlx::Error> {
    let query = owned(sql::SETTLE, lookup, token).bind(microseconds(retention)).bind(answer).bind(from);
    changed(query, connection).await
}

pub(crate) async fn orphan(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    token: Token,
    retention: Duration,
) -> Result<(), sqlx::Error> {
    owned(sql::ORPHAN, lookup, token).bind(microseconds(retention)).execute(connection).await.map(drop)
}

pub(crate) async fn take_back(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    token: Token,
) -> Result<(), sqlx::Error> {
    owned(sql::TAKE_BACK, lookup, token).execute(connection).await.map(drop)
}

/// The state of the claim's own row, if it is there.
pub(crate) async fn find_own(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    token: Token,
) -> Result<Option<i64>, sqlx::Error> {
    let row = owned(sql::FIND_OWN, lookup, token).fetch_optional(connection).await?;
    row.map(|row| row.try_get("state")).transpose()
}

pub(crate) async fn find(
    connection: &mut SqliteConnection,
    (scope, key, endpoint): (&ScopeId, &Key, Option<&Endpoint>),
) -> Result<Vec<(StoredEntry, Option<Vec<u8>>)>, sqlx::Error> {
    let query = sqlx::query(sql::FIND).bind(scope.as_str()).bind(key.as_str()).bind(endpoint.map(Endpoint::as_str));
    query.fetch_all(connection).await?.iter().map(read_entry).collect()
}

pub(crate) async fn unsettled(
    connection: &mut SqliteConnection,
    limit: u32,
) -> Result<Vec<(StoredEntry, Option<Vec<u8>>)>, sqlx::Error> {
    sqlx::query(sql::UNSETTLED).bind(limit).fetch_all(connection).await?.iter().map(read_entry).collect()
}

/// A record with its owner.
fn read_entry(row: &SqliteRow) -> Result<(StoredEntry, Option<Vec<u8>>), sqlx::Error> {
    let microseconds = |microseconds: i64| Duration::from_micros(microseconds.try_into().unwrap_or_default());
    let entry = StoredEntry {
        lookup: (row.try_get("scope")?, row.try_get("id_key")?, row.try_get("endpoint")?),
        state: row.try_get("state")?,
        token: row.try_get("token")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        age: microseconds(row.try_get("age")?),
        expires_in: microseconds(row.try_get("expires_in")?),
    };
    Ok((entry, row.try_get("owner")?))
}

/// Whether exactly the record in this state was deleted.
pub(crate) async fn forget(
    connection: &mut SqliteConnection,
    lookup: &LookupKey,
    token: Token,
    state: i64,
) -> Result<bool, sqlx::Error> {
    changed(owned(sql::FORGET, lookup, token).bind(state), connection).await
}

pub(crate) async fn purge(connection: &mut SqliteConnection, limit: u32) -> Result<Batch, sqlx::Error> {
    sqlx::query_scalar(sql::PURGE).bind(limit).fetch_all(connection).await.map(Batch::of)
}

pub(crate) async fn old_owners(connection: &mut SqliteConnection, limit: u32) -> Result<Vec<Vec<u8>>, sqlx::Error> {
    sqlx::query_scalar(sql::OLD_OWNERS).bind(limit).fetch_all(connection).await
}

pub(crate) async fn purge_dead(
    connection: &mut SqliteConnection,
    limit: u32,
    owner: &[u8],
) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query(sql::PURGE_DEAD).bind(limit).bind(owner).execute(connection).await?.rows_affected())
}

/// Retention as SQLite takes it; a thousand years is as good as for ever and stays within an integer.
fn microseconds(duration: Duration) -> i64 {
    const MOST: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);
    i64::try_from(duration.min(MOST).as_micros()).unwrap_or(i64::MAX)
}
