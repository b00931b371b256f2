//! The statements of a Postgres store, prepared once for its schema, with their parameters and results in Rust types.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row, SqlStr};

use super::purge;
use super::{Locks, sql};
use crate::db::sql::{SchemaName, expand};
use crate::fingerprint::Fingerprint;
use crate::lookup::LookupKey;
use crate::purge::Batch;
use crate::store::Token;

/// The texts of one store.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Not above READ COMMITTED.
    claim_new: Option<SqlStr>,
    claim: SqlStr,
    peek: SqlStr,
    settle: SqlStr,
    store_finished: SqlStr,
    find_own: SqlStr,
    purge: SqlStr,
    /// Off where the pool keeps no statement cache: named statements would pile up on the server (S10).
    persistent: bool,
}

/// What the claim statement saw.
#[derive(Debug)]
pub(crate) enum Seen {
    Row {
        state: i16,
        fingerprint: Vec<u8>,
        answer: Option<Bytes>,
    },
    Claimed(ClaimedRow),
    /// Somebody else holds the key; `other` if it is surely for another request.
    Held {
        other: bool,
    },
    /// Held, or committed after the statement's snapshot: ask again.
    Unseen,
}

/// Where the claim's own row stands.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedRow {
    pub(crate) ctid: String,
    pub(crate) xid: String,
    /// Microseconds since the epoch, by the server's clock.
    pub(crate) accepted: i64,
}

/// What rides in the claim statement to bound a transaction whose host dies without a word (S15).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) idle: Option<Duration>,
    pub(crate) keepalive_idle: Duration,
    pub(crate) keepalive_interval: Duration,
}

/// What a claim asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) lookup: &'a LookupKey,
    pub(crate) locks: Locks,
    pub(crate) fingerprint: &'a Fingerprint,
    pub(crate) token: Token,
    pub(crate) retention: Duration,
    pub(crate) bounds: Bounds,
}

/// A finished record to store in a transaction of its own.
pub(crate) struct Finished<'a> {
    pub(crate) state: i16,
    pub(crate) fingerprint: &'a Fingerprint,
    pub(crate) token: Token,
    pub(crate) accepted: i64,
    pub(crate) retention: Duration,
    pub(crate) answer: Option<&'a [u8]>,
}

pub(crate) const COMPLETED: i16 = 1;
pub(crate) const ORPHANED: i16 = 2;

impl Statements {
    pub(crate) fn new(schema: &SchemaName, strict: bool, persistent: bool) -> Self {
        Self {
            claim_new: (!strict).then(|| expand(sql::CLAIM_NEW, Some(schema))),
            claim: expand(if strict { sql::CLAIM_STRICT } else { sql::CLAIM }, Some(schema)),
            peek: expand(sql::PEEK, Some(schema)),
            settle: expand(sql::SETTLE, Some(schema)),
            store_finished: expand(sql::STORE_FINISHED, Some(schema)),
            find_own: expand(sql::FIND_OWN, Some(schema)),
            purge: expand(sql::PURGE, Some(schema)),
            persistent,
        }
    }

    fn query(&self, text: &SqlStr) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(text.clone()).persistent(self.persistent)
    }

    /// The live row of a key, if there is one, outside any transaction.
    pub(crate) async fn peek(
        &self,
        connection: &mut PgConnection,
        lookup: &LookupKey,
    ) -> Result<Option<Seen>, sqlx::Error> {
        let row = self
            .query(&self.peek)
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
            .fetch_optional(connection)
            .await?;
        row.as_ref().map(read_live).transpose().map(Option::flatten)
    }

    /// Claims a key that has no row and that nobody holds. `None`: ask by [`Self::claim`].
    pub(crate) async fn claim_new(
        &self,
        connection: &mut PgConnection,
        wanted: &Wanted<'_>,
    ) -> Result<Option<ClaimedRow>, sqlx::Error> {
        let Some(text) = &self.claim_new else { return Ok(None) };
        let row = self.claiming(text, wanted).fetch_optional(connection).await?;
        row.as_ref().map(|row| read_claimed(row, row.try_get("ctid")?)).transpose()
    }

    pub(crate) async fn claim(&self, connection: &mut PgConnection, wanted: &Wanted<'_>) -> Result<Seen, sqlx::Error> {
        let row = self.claiming(&self.claim, wanted).fetch_optional(connection).await?;
        row.as_ref().map_or(Ok(Seen::Unseen), read_claim)
    }

    fn claiming(&self, text: &SqlStr, wanted: &Wanted<'_>) -> Query<'static, Postgres, PgArguments> {
        let Wanted { lookup, locks, bounds, .. } = *wanted;
        self.query(text)
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
            .bind(locks.key)
            .bind(locks.fingerprint.0)
            .bind(locks.fingerprint.1)
            .bind(&wanted.fingerprint.to_bytes()[..])
            .bind(&wanted.token.as_bytes()[..])
            .bind(microseconds(wanted.retention))
            .bind(bounds.idle.map(|idle| idle.as_millis().clamp(1, i32::MAX as u128).to_string()))
            .bind(whole_seconds(bounds.keepalive_idle))
            .bind(whole_seconds(bounds.keepalive_interval))
    }

    /// Whether exactly the claim's own row was settled, in its own transaction.
    pub(crate) async fn settle(
        &self,
        connection: &mut PgConnection,
        lookup: &LookupKey,
        ctid: &str,
        retention: Duration,
        answer: &[u8],
    ) -> Result<bool, sqlx::Error> {
        let done = self
            .query(&self.settle)
            .bind(ctid)
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
            .bind(microseconds(retention))
            .bind(answer)
            .execute(connection)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The transaction that is open now, if it has written.
    pub(crate) async fn current_xid(&self, connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
        sqlx::query_scalar(sql::CURRENT_XID).persistent(self.persistent).fetch_one(connection).await
    }

    /// Whether the record was stored: not where somebody else holds the key or has a live record under it.
    pub(crate) async fn store_finished(
        &self,
        connection: &mut PgConnection,
        lookup: &LookupKey,
        lock: i64,
        record: &Finished<'_>,
    ) -> Result<bool, sqlx::Error> {
        let row = self
            .query(&self.store_finished)
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
            .bind(lock)
            .bind(&record.fingerprint.to_bytes()[..])
            .bind(&record.token.as_bytes()[..])
            .bind(record.state)
            .bind(record.accepted)
            .bind(microseconds(record.retention))
            .bind(record.answer)
            .fetch_one(connection)
            .await?;
        Ok(row.try_get::<i64, _>(0)? == 1)
    }

    /// Whether the answer of the claim with this token is committed.
    pub(crate) async fn find_own(
        &self,
        connection: &mut PgConnection,
        lookup: &LookupKey,
        token: Token,
    ) -> Result<bool, sqlx::Error> {
        let row = self
            .query(&self.find_own)
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
            .bind(&token.as_bytes()[..])
            .fetch_optional(connection)
            .await?;
        Ok(row.is_some())
    }

    pub(crate) async fn purge(&self, connection: &mut PgConnection, limit: u32) -> Result<u64, sqlx::Error> {
        // Planned anew: a plan for any limit reads the whole table.
        let query = self.query(&self.purge).persistent(false).bind(i64::from(limit));
        Ok(query.execute(connection).await?.rows_affected())
    }

    pub(crate) async fn purge_batch(
        &self,
        pool: &sqlx::PgPool,
        schema: &SchemaName,
        limit: u32,
    ) -> Result<Batch, sqlx::Error> {
        purge::batch(pool, schema, self.persistent, &[&self.purge], limit).await
    }
}

fn read_live(row: &PgRow) -> Result<Option<Seen>, sqlx::Error> {
    let Some(state) = row.try_get::<Option<i16>, _>("state")? else { return Ok(None) };
    let answer = row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from);
    Ok(Some(Seen::Row { state, fingerprint: row.try_get("fingerprint")?, answer }))
}

fn read_claim(row: &PgRow) -> Result<Seen, sqlx::Error> {
    if let Some(seen) = read_live(row)? {
        return Ok(seen);
    }
    if let Some(ctid) = row.try_get::<Option<String>, _>("ctid")? {
        return read_claimed(row, ctid).map(Seen::Claimed);
    }
    if row.try_get::<Option<bool>, _>("got_key")? == Some(true) {
        return Ok(Seen::Unseen);
    }
    let rival = row.try_get::<Option<bool>, _>("rival")?.unwrap_or(false);
    Ok(Seen::Held { other: rival })
}

fn read_claimed(row: &PgRow, ctid: String) -> Result<ClaimedRow, sqlx::Error> {
    Ok(ClaimedRow { ctid, xid: row.try_get("xid")?, accepted: row.try_get("accepted")? })
}

/// Retention as the server takes it; a thousand years is as good as for ever and stays within its calendar.
pub(super) fn microseconds(duration: Duration) -> i64 {
    const MOST: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);
    i64::try_from(duration.min(MOST).as_micros()).unwrap_or(i64::MAX)
}

fn whole_seconds(duration: Duration) -> String {
    duration.as_secs().clamp(1, i32::MAX as u64).to_string()
}
