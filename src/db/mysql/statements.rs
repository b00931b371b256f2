//! The statements of a MySQL store, prepared once for its schema, with their parameters and results in Rust types.

use std::time::Duration;

use bytes::Bytes;
use sqlx::{MySql, MySqlConnection, Row, SqlStr};

use super::call::Bound;
use super::purge::batch;
use super::{Flavor, says_duplicate, sql};
use crate::db::fault::{Fault, fault};
use crate::db::lease::microseconds;
use crate::db::sql::{SchemaName, expand};
use crate::lookup::LookupKey;
use crate::purge::Batch;
use crate::store::{ClaimRequest, Token};

/// How often the holder of a named lock looks again at a row that a purge takes away meanwhile.
const LOOKS: usize = 3;

/// The texts of one store.
#[derive(Debug)]
pub(crate) struct Statements {
    flavor: Flavor,
    claim: SqlStr,
    take_over: SqlStr,
    find: SqlStr,
    peek: SqlStr,
    settle_and_commit: SqlStr,
    settle: SqlStr,
    accepted: SqlStr,
    finish: SqlStr,
    orphan: SqlStr,
    find_own: SqlStr,
    lock_expired: SqlStr,
    delete_expired: SqlStr,
}

/// What a claim met.
#[derive(Debug)]
pub(crate) enum Seen {
    /// By the session of this number.
    Claimed(u64),
    /// A live row that is committed.
    Row(Found),
    /// Somebody else holds the key, or has held it a moment ago.
    Held,
}

/// A row.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) state: i16,
    pub(crate) fingerprint: Vec<u8>,
    /// Absent from what was only peeked at.
    pub(crate) answer: Option<Bytes>,
    pub(crate) expired: bool,
}

/// A finished record in place of a claim's row.
pub(crate) struct Finished<'a> {
    /// Microseconds since the epoch, by the server's clock.
    pub(crate) accepted: i64,
    pub(crate) retention: Duration,
    pub(crate) answer: &'a [u8],
}

impl Statements {
    pub(crate) fn new(schema: &SchemaName, flavor: Flavor) -> Self {
        let text = |template| expand(template, Some(schema));
        let (claim, finish) = match flavor {
            Flavor::NoWait => (sql::CLAIM_NO_WAIT, sql::FINISH_NO_WAIT),
            Flavor::NamedLock => (sql::CLAIM_LOCKED, sql::FINISH_LOCKED),
        };
        Self {
            flavor,
            claim: text(claim),
            take_over: text(sql::TAKE_OVER),
            find: text(sql::FIND),
            peek: text(sql::PEEK),
            settle_and_commit: text(sql::SETTLE_AND_COMMIT),
            settle: text(sql::SETTLE),
            accepted: text(sql::ACCEPTED),
            finish: text(finish),
            orphan: text(sql::ORPHAN),
            find_own: text(sql::FIND_OWN),
            lock_expired: text(sql::LOCK_EXPIRED),
            delete_expired: text(sql::DELETE_EXPIRED),
        }
    }

    /// Asks for the key in the claim's transaction. `lock` is the name of its lock, where it takes one.
    pub(crate) async fn claim(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
        lock: Option<&str>,
    ) -> Result<Seen, sqlx::Error> {
        match lock {
            None => self.claim_without_waiting(connection, request).await,
            Some(lock) => self.claim_under_lock(connection, request, lock).await,
        }
    }

    async fn claim_without_waiting(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
    ) -> Result<Seen, sqlx::Error> {
        let asked = at(&self.claim, request.lookup())
            .bind(request.fingerprint().to_bytes().to_vec())
            .bind(request.token().as_bytes().to_vec())
            .bind(microseconds(request.retention()));
        match asked.fetch_one(connection).await {
            Ok(row) if row.try_get::<&[u8], _>("token")? == request.token().as_bytes() => {
                Ok(Seen::Claimed(row.try_get_unchecked("session")?))
            }
            Ok(row) => Ok(Seen::Row(Found {
                state: row.try_get("state")?,
                fingerprint: row.try_get("fingerprint")?,
                answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
                expired: false,
            })),
            Err(error) if fault::<MySql>(&error) == Fault::Conflict => Ok(Seen::Held),
            Err(error) => Err(error),
        }
    }

    async fn claim_under_lock(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
        lock: &str,
    ) -> Result<Seen, sqlx::Error> {
        for _ in 0..LOOKS {
            let inserted = at(&self.claim, request.lookup())
                .bind(request.fingerprint().to_bytes().to_vec())
                .bind(request.token().as_bytes().to_vec())
                .bind(microseconds(request.retention()))
                .bind(lock.to_owned())
                .execute(&mut *connection)
                .await;
            match inserted {
                // One row, or none: a plain INSERT counts what it has inserted.
                Ok(done) if done.rows_affected() == 1 => return Ok(Seen::Claimed(done.last_insert_id())),
                Ok(_) => return Ok(Seen::Held),
                Err(error) if says_duplicate(&error) => {}
                Err(error) => return Err(error),
            }
            match self.find(&mut *connection, request.lookup()).await? {
                Some(found) if !found.expired => return Ok(Seen::Row(found)),
                Some(_) => {
                    let taken = sqlx::query(self.take_over.clone())
                        .bind(request.fingerprint().to_bytes().to_vec())
                        .bind(request.token().as_bytes().to_vec())
                        .bind(microseconds(request.retention()));
                    let done = bound(taken, request.lookup()).execute(&mut *connection).await?;
                    if done.rows_affected() == 1 {
                        return Ok(Seen::Claimed(done.last_insert_id()));
                    }
                }
                None => {}
            }
        }
        Ok(Seen::Held)
    }

    /// The row, answer included.
    pub(crate) async fn find(
        &self,
        connection: &mut MySqlConnection,
        lookup: &LookupKey,
    ) -> Result<Option<Found>, sqlx::Error> {
        let Some(row) = at(&self.find, lookup).fetch_optional(connection).await? else { return Ok(None) };
        Ok(Some(Found {
            state: row.try_get("state")?,
            fingerprint: row.try_get("fingerprint")?,
            answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
            expired: row.try_get::<i64, _>("expired")? != 0,
        }))
    }

    /// The row without its answer, for a transaction that sees what is not committed.
    pub(crate) async fn peek(
        &self,
        connection: &mut MySqlConnection,
        lookup: &LookupKey,
    ) -> Result<Option<Found>, sqlx::Error> {
        let Some(row) = at(&self.peek, lookup).fetch_optional(connection).await? else { return Ok(None) };
        Ok(Some(Found {
            state: row.try_get("state")?,
            fingerprint: row.try_get("fingerprint")?,
            answer: None,
            expired: row.try_get::<i64, _>("expired")? != 0,
        }))
    }

    /// Settles the claim and commits it (MariaDB). Whether the answer was this statement's own.
    pub(crate) async fn settle_and_commit(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
        retention: Duration,
        answer: Vec<u8>,
    ) -> Result<bool, sqlx::Error> {
        let asked = sqlx::query(self.settle_and_commit.clone()).bind(answer).bind(microseconds(retention));
        let rows = bound(asked, request.lookup())
            .bind(request.token().as_bytes().to_vec())
            .bind(request.token().as_bytes().to_vec())
            .fetch_all(connection)
            .await?;
        let echo = rows.last().map(|row| row.try_get::<&[u8], _>(0)).transpose()?;
        Ok(echo == Some(request.token().as_bytes()))
    }

    /// Stores the answer in the claim's own row; `false` where it is not there.
    pub(crate) async fn settle(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
        retention: Duration,
        answer: Vec<u8>,
    ) -> Result<bool, sqlx::Error> {
        let asked = sqlx::query(self.settle.clone()).bind(answer).bind(microseconds(retention));
        let done = bound(asked, request.lookup()).bind(request.token().as_bytes().to_vec()).execute(connection).await?;
        Ok(done.rows_affected() == 1)
    }

    /// When the claim was accepted; `None` where its row is not there.
    pub(crate) async fn accepted(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
    ) -> Result<Option<i64>, sqlx::Error> {
        let asked = at(&self.accepted, request.lookup()).bind(request.token().as_bytes().to_vec());
        asked.fetch_optional(connection).await?.map(|row| row.try_get(0)).transpose()
    }

    /// Stores a finished record where the claim's row was; `false` where somebody else was faster.
    pub(crate) async fn finish(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
        finished: &Finished<'_>,
    ) -> Result<bool, sqlx::Error> {
        for _ in 0..LOOKS {
            let asked = at(&self.finish, request.lookup())
                .bind(request.fingerprint().to_bytes().to_vec())
                .bind(request.token().as_bytes().to_vec())
                .bind(finished.accepted)
                .bind(finished.accepted)
                .bind(microseconds(finished.retention))
                .bind(finished.answer.to_vec());
            match (self.flavor, asked.fetch_optional(&mut *connection).await) {
                (Flavor::NoWait, Ok(Some(row))) => {
                    return Ok(row.try_get::<&[u8], _>("token")? == request.token().as_bytes());
                }
                (Flavor::NamedLock, Ok(_)) => return Ok(true),
                (Flavor::NamedLock, Err(error)) if says_duplicate(&error) => {
                    // The claim had taken an expired row over, which is back now.
                    at(&self.delete_expired, request.lookup()).execute(&mut *connection).await?;
                }
                (Flavor::NoWait, Ok(None)) => return Ok(false),
                (Flavor::NoWait, Err(error)) if fault::<MySql>(&error) == Fault::Conflict => return Ok(false),
                (_, Err(error)) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Closes the key of a claim that its handler has committed; `false` where there is no such row.
    pub(crate) async fn orphan(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
    ) -> Result<bool, sqlx::Error> {
        let asked = sqlx::query(self.orphan.clone()).bind(microseconds(request.retention()));
        let done = bound(asked, request.lookup()).bind(request.token().as_bytes().to_vec()).execute(connection).await?;
        Ok(done.rows_affected() == 1)
    }

    /// Whether the answer of this claim is committed.
    pub(crate) async fn find_own(
        &self,
        connection: &mut MySqlConnection,
        lookup: &LookupKey,
        token: Token,
    ) -> Result<bool, sqlx::Error> {
        Ok(at(&self.find_own, lookup).bind(token.as_bytes().to_vec()).fetch_optional(connection).await?.is_some())
    }

    /// Deletes up to `limit` expired rows in the caller's transaction, and returns how many.
    pub(crate) async fn purge(&self, connection: &mut MySqlConnection, limit: u32) -> Result<u64, sqlx::Error> {
        purge(connection, &self.lock_expired, &self.delete_expired, limit).await.map(Batch::purged)
    }

    pub(crate) async fn purge_batch(
        &self,
        pool: &sqlx::MySqlPool,
        schema: &SchemaName,
        limit: u32,
    ) -> Result<Batch, sqlx::Error> {
        batch(pool, schema, vec![(self.lock_expired.clone(), self.delete_expired.clone())], limit).await
    }
}

/// Deletes up to `limit` rows that the first statement locks by the second, which looks at them again. After the three parts of
/// a row's key the first says how long it has been expired, in microseconds.
pub(super) async fn purge(
    connection: &mut MySqlConnection,
    lock: &SqlStr,
    delete: &SqlStr,
    limit: u32,
) -> Result<Batch, sqlx::Error> {
    let rows = sqlx::query(lock.clone()).bind(limit).fetch_all(&mut *connection).await?;
    let mut overdue = Vec::new();
    for row in &rows {
        let delete = sqlx::query(delete.clone())
            .bind(row.try_get::<Vec<u8>, _>(0)?)
            .bind(row.try_get::<Vec<u8>, _>(1)?)
            .bind(row.try_get::<Vec<u8>, _>(2)?);
        if delete.execute(&mut *connection).await?.rows_affected() > 0 {
            overdue.push(row.try_get(3)?);
        }
    }
    Ok(Batch::of(overdue))
}

/// A statement whose first parameters are the three parts of a look-up key.
fn at(text: &SqlStr, lookup: &LookupKey) -> Bound {
    bound(sqlx::query(text.clone()), lookup)
}

/// The three parts as the next parameters, in bytes: as text they would be compared by a collation.
pub(super) fn bound(query: Bound, lookup: &LookupKey) -> Bound {
    query
        .bind(lookup.scope().as_str().as_bytes().to_vec())
        .bind(lookup.key().as_str().as_bytes().to_vec())
        .bind(lookup.endpoint().as_str().as_bytes().to_vec())
}
