//! The statements of operator calls, which are rare and so prepared by nobody (S8).

use std::time::Duration;

use bytes::Bytes;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlPool, Row};

use super::call::{Bound, call, change_without_waiting};
use super::lease::text;
use super::statements::bound;
use super::{Flavor, sql};
use crate::db::lease::microseconds;
use crate::db::sql::{SchemaName, expand, mysql_no_wait};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::scope::ScopeId;
use crate::store::Token;
use crate::store::stored::StoredEntry;

/// The table that operators look at.
pub(crate) struct Records<'a> {
    pub(crate) pool: &'a MySqlPool,
    pub(crate) schema: &'a SchemaName,
    pub(crate) flavor: Flavor,
}

/// Rows as anybody sees them, and as they would be if everything were committed.
pub(crate) struct Looked {
    pub(crate) committed: Vec<StoredEntry>,
    pub(crate) open: Vec<StoredEntry>,
}

/// What an operator does with a record that nobody runs.
pub(crate) enum Operation<'a> {
    Release,
    Settle { answer: &'a [u8], retention: Duration },
    Forget,
}

impl Records<'_> {
    /// The records of a key.
    pub(crate) async fn find(
        &self,
        scope: &ScopeId,
        key: &Key,
        endpoint: Option<&Endpoint>,
    ) -> Result<Looked, sqlx::Error> {
        let find = |text| {
            let endpoint = endpoint.map(|endpoint| endpoint.as_str().as_bytes().to_vec());
            self.query(text)
                .bind(scope.as_str().as_bytes().to_vec())
                .bind(key.as_str().as_bytes().to_vec())
                .bind(endpoint.clone())
                .bind(endpoint)
        };
        self.look(find(sql::PEEK_ENTRIES), find(sql::FIND_ENTRIES)).await
    }

    /// Records without an answer: of any age those that are committed, and those that run for so long.
    pub(crate) async fn stuck(&self, older_than: Duration, limit: u32) -> Result<Looked, sqlx::Error> {
        let stuck = |text, age| self.query(text).bind(microseconds(age)).bind(limit);
        self.look(stuck(sql::PEEK_STUCK_ENTRIES, older_than), stuck(sql::STUCK_ENTRIES, Duration::ZERO)).await
    }

    fn query(&self, text: &'static str) -> Bound {
        sqlx::query(expand(text, Some(self.schema))).persistent(false)
    }

    /// What is committed meanwhile is seen by the second look, as what it is.
    async fn look(&self, open: Bound, committed: Bound) -> Result<Looked, sqlx::Error> {
        call(self.pool, move |connection| {
            Box::pin(async move {
                sqlx::raw_sql(sql::REOPEN_DIRTY).execute(&mut *connection).await?;
                let open = open.fetch_all(&mut *connection).await;
                sqlx::raw_sql(sql::REOPEN_COMMITTED).execute(&mut *connection).await?;
                let committed = committed.fetch_all(&mut *connection).await;
                sqlx::raw_sql(sql::ROLLBACK).execute(connection).await?;
                let read = |rows: Vec<MySqlRow>| rows.iter().map(read).collect::<Result<_, sqlx::Error>>();
                Ok(Looked { committed: read(committed?)?, open: read(open?)? })
            })
        })
        .await
    }

    /// Whether there was such a record. An error of a conflict where somebody has locked it: a running attempt, or
    /// somebody who looks at it.
    pub(crate) async fn operate(
        &self,
        lookup: &LookupKey,
        token: Token,
        operation: &Operation<'_>,
    ) -> Result<bool, sqlx::Error> {
        let prefix = match self.flavor {
            Flavor::NoWait => sql::NO_WAIT,
            Flavor::NamedLock => "",
        };
        let query = |text| sqlx::query(mysql_no_wait(text, self.schema, prefix)).persistent(false);
        let change = match operation {
            Operation::Release => query(sql::RELEASE),
            Operation::Forget => query(sql::FORGET),
            Operation::Settle { answer, retention } => {
                query(sql::SETTLE_AS).bind(answer.to_vec()).bind(microseconds(*retention))
            }
        };
        let change = bound(change, lookup).bind(token.as_bytes().to_vec());
        change_without_waiting(self.pool, self.flavor, bound(self.query(sql::LOCK), lookup), change).await
    }
}

fn read(row: &MySqlRow) -> Result<StoredEntry, sqlx::Error> {
    Ok(StoredEntry {
        lookup: (text(row, "scope")?, text(row, "id_key")?, text(row, "endpoint")?),
        state: row.try_get::<i16, _>("state")?.into(),
        token: row.try_get("token")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        age: of_microseconds(row.try_get("age")?),
        expires_in: of_microseconds(row.try_get("expires_in")?),
    })
}

/// A clock that was set back makes no negative times.
fn of_microseconds(microseconds: i64) -> Duration {
    Duration::from_micros(microseconds.try_into().unwrap_or_default())
}
