//! The statements of operator calls, which are rare and so prepared by nobody (S8).

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};

use super::sql;
use crate::db::sql::{SchemaName, expand};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::scope::ScopeId;
use crate::store::stored::StoredEntry;
use crate::store::{Holder, Token};

/// Which record is meant, and how it must be for a change.
pub(crate) struct Target<'a> {
    pub(crate) lookup: &'a LookupKey,
    pub(crate) lock: i64,
    pub(crate) token: Token,
    pub(crate) states: &'a [i16],
}

/// What a change found.
pub(crate) enum Changed {
    Yes,
    No,
    /// Somebody holds the key.
    Busy,
}

fn query(text: &'static str, schema: &SchemaName) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(expand(text, Some(schema))).persistent(false)
}

pub(crate) async fn find(
    connection: &mut PgConnection,
    schema: &SchemaName,
    (scope, key, endpoint): (&ScopeId, &Key, Option<&Endpoint>),
) -> Result<Vec<StoredEntry>, sqlx::Error> {
    let query = query(sql::FIND, schema).bind(scope.as_str()).bind(key.as_str()).bind(endpoint.map(Endpoint::as_str));
    query.fetch_all(connection).await?.iter().map(read).collect()
}

pub(crate) async fn stuck(
    connection: &mut PgConnection,
    schema: &SchemaName,
    limit: u32,
) -> Result<Vec<StoredEntry>, sqlx::Error> {
    query(sql::STUCK, schema).bind(i64::from(limit)).fetch_all(connection).await?.iter().map(read).collect()
}

fn target(text: &'static str, schema: &SchemaName, target: &Target<'_>) -> Query<'static, Postgres, PgArguments> {
    query(text, schema)
        .bind(target.lookup.scope().as_str().to_owned())
        .bind(target.lookup.key().as_str().to_owned())
        .bind(target.lookup.endpoint().as_str().to_owned())
        .bind(target.lock)
        .bind(target.token.as_bytes().to_vec())
        .bind(target.states.to_vec())
}

pub(crate) async fn forget(
    connection: &mut PgConnection,
    schema: &SchemaName,
    record: &Target<'_>,
) -> Result<Changed, sqlx::Error> {
    changed(&target(sql::FORGET, schema, record).fetch_one(connection).await?)
}

pub(crate) async fn settle_as(
    connection: &mut PgConnection,
    schema: &SchemaName,
    record: &Target<'_>,
    retention: Duration,
    answer: &[u8],
) -> Result<Changed, sqlx::Error> {
    let query = target(sql::SETTLE_AS, schema, record).bind(super::statements::microseconds(retention));
    changed(&query.bind(answer.to_vec()).fetch_one(connection).await?)
}

fn changed(row: &PgRow) -> Result<Changed, sqlx::Error> {
    Ok(match (row.try_get("got")?, row.try_get("changed")?) {
        (false, _) => Changed::Busy,
        (true, true) => Changed::Yes,
        (true, false) => Changed::No,
    })
}

/// Who runs the key.
pub(crate) async fn holder(connection: &mut PgConnection, lock: i64) -> Result<Option<Holder>, sqlx::Error> {
    let query = sqlx::query(sql::HOLDER).persistent(false).bind(lock);
    query.fetch_optional(connection).await?.as_ref().map(read_holder).transpose()
}

/// Who runs anything for so long.
pub(crate) async fn holders(
    connection: &mut PgConnection,
    schema: &SchemaName,
    open_for: Duration,
    limit: u32,
) -> Result<Vec<Holder>, sqlx::Error> {
    let query = query(sql::HOLDERS, schema).bind(super::statements::microseconds(open_for)).bind(i64::from(limit));
    query.fetch_all(connection).await?.iter().map(read_holder).collect()
}

pub(crate) async fn terminate(
    connection: &mut PgConnection,
    schema: &SchemaName,
    (pid, begun): (i32, i64),
) -> Result<bool, sqlx::Error> {
    query(sql::TERMINATE, schema).bind(pid).bind(begun).fetch_one(connection).await?.try_get(0)
}

fn read(row: &PgRow) -> Result<StoredEntry, sqlx::Error> {
    Ok(StoredEntry {
        lookup: (row.try_get("scope")?, row.try_get("id_key")?, row.try_get("endpoint")?),
        state: row.try_get::<i16, _>("state")?.into(),
        token: row.try_get("token")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        age: of_microseconds(row.try_get("age")?),
        expires_in: of_microseconds(row.try_get("expires_in")?),
    })
}

fn read_holder(row: &PgRow) -> Result<Holder, sqlx::Error> {
    Ok(Holder {
        pid: row.try_get::<i32, _>("pid")?.into(),
        open_for: of_microseconds(row.try_get("open_for")?),
        client: row.try_get("client")?,
        begun: row.try_get("begun")?,
    })
}

/// A clock that was set back makes no negative times.
fn of_microseconds(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.try_into().unwrap_or_default())
}
