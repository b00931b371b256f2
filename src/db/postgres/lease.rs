//! Leases on Postgres: every SQL text, and how they are run.
//!
//! Plain INSERT … ON CONFLICT DO NOTHING, UPDATE and SELECT … FOR UPDATE SKIP LOCKED, each in a transaction of its own;
//! no advisory lock and nothing of one session, so that Postgres-compatible distributed engines can run them too.

pub(super) mod sql;

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, PgPool, Postgres, Row, SqlStr};

use super::alone;
use super::inspect::{Inspected, inspect};
use super::{purge, stats};
use crate::db::fault::in_claim;
use crate::db::lease::{
    Asked, Change, Found, Granted, LeaseDialect, NOBODY, NewLease, Operation, Owner, Search, Seen, Standing, Table,
    Take, checkpoint, is_outermost, microseconds,
};
use crate::db::migrate;
use crate::db::sql::{SchemaName, expand};
use crate::error::Error;
use crate::lookup::LookupKey;
use crate::purge::Batch;
use crate::store::KeyStats;
use sql::Texts;

impl LeaseDialect for Postgres {
    type Table = PostgresLeases;
}

/// The table of one schema.
#[expect(unnameable_types, reason = "part of the sealed trait `LeaseDialect`")]
#[derive(Debug)]
pub struct PostgresLeases {
    pool: PgPool,
    schema: SchemaName,
    texts: Texts,
    /// Off where the pool keeps no statement cache: named statements would pile up on the server (S10).
    persistent: bool,
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

impl PostgresLeases {
    fn of<'q>(&self, text: &SqlStr, lookup: &'q LookupKey) -> Bound<'q> {
        sqlx::query(text.clone())
            .persistent(self.persistent)
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
    }

    fn owned<'q>(&self, text: &SqlStr, owner: &'q Owner) -> Bound<'q> {
        self.of(text, &owner.lookup).bind(&owner.token.as_bytes()[..])
    }

    fn new_lease<'q>(&self, text: &SqlStr, lease: &NewLease<'q>) -> Bound<'q> {
        self.of(text, lease.lookup)
            .bind(lease.fingerprint.to_bytes().to_vec())
            .bind(lease.token.as_bytes().to_vec())
            .bind(lease.held)
            .bind(microseconds(lease.lease))
            .bind(microseconds(lease.retention))
    }

    async fn changed(&self, query: Bound<'_>) -> Result<bool, sqlx::Error> {
        Ok(alone::execute(&self.pool, self.persistent, query).await? == 1)
    }

    async fn fetch(&self, query: Bound<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        alone::fetch(&self.pool, self.persistent, query).await
    }
}

impl Table for PostgresLeases {
    type Engine = Postgres;

    async fn open(pool: PgPool, schema: Option<&str>) -> Result<Self, Error> {
        let Inspected { schema, persistent, .. } = inspect(&pool, schema, "idempotency_leases").await?;
        Ok(Self { texts: Texts::new(|template| expand(template, Some(&schema))), pool, schema, persistent })
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrate::postgres(&self.pool, &self.schema).await
    }

    fn error(error: sqlx::Error) -> Error {
        in_claim::<Postgres>(error)
    }

    async fn ask(&self, lease: &NewLease<'_>) -> Result<Asked, sqlx::Error> {
        let rows = self.fetch(self.new_lease(&self.texts.ask, lease)).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        if let Some(fence) = row.try_get("granted")? {
            return Ok(Asked::Granted(Granted { fence, attempt: 1, checkpoint: None }));
        }
        match row.try_get::<Option<i16>, _>("state")? {
            Some(state) => seen(row, state).map(Asked::Seen),
            None => Ok(Asked::Unseen),
        }
    }

    async fn take(&self, lease: &NewLease<'_>, seen: &Seen, how: Take) -> Result<Option<Granted>, sqlx::Error> {
        let text = match how {
            Take::Over => &self.texts.take_over,
            Take::Afresh => &self.texts.take_afresh,
        };
        let query = self.new_lease(text, lease).bind(&seen.token[..]).bind(seen.granted.fence);
        self.fetch(query).await?.first().map(granted).transpose()
    }

    async fn change(&self, owner: &Owner, change: Change<'_>) -> Result<bool, sqlx::Error> {
        let texts = &self.texts;
        let query = match change {
            Change::Renew(lease) => self.owned(&texts.renew, owner).bind(microseconds(lease)),
            Change::Dispatch { held } => self.owned(&texts.dispatch, owner).bind(held),
            Change::Settle(stored) => {
                self.owned(&texts.settle, owner).bind(microseconds(stored.retention)).bind(stored.answer)
            }
            Change::Abandon => self.owned(&texts.abandon, owner).bind(&NOBODY[..]),
            Change::Stop => self.owned(&texts.stop, owner),
        };
        self.changed(query).await
    }

    async fn standing(&self, owner: &Owner) -> Result<Option<Standing>, sqlx::Error> {
        let rows = self.fetch(self.owned(&self.texts.standing, owner)).await?;
        rows.first()
            .map(|row| Ok(if row.try_get::<i16, _>(0)? == 0 { Standing::Running } else { Standing::Completed }))
            .transpose()
    }

    async fn hold(
        &self,
        connection: &mut PgConnection,
        owner: &Owner,
        lease: Duration,
        step: Option<(&str, &[u8])>,
    ) -> Result<bool, sqlx::Error> {
        is_outermost::<Postgres>(connection)?;
        let query = match step {
            None => self.owned(&self.texts.guard, owner).bind(microseconds(lease)),
            Some((step, state)) => {
                self.owned(&self.texts.checkpoint, owner).bind(microseconds(lease)).bind(step).bind(state)
            }
        };
        match query.execute(connection).await {
            Ok(_) => Ok(true),
            // The statement divides by the number of rows that it has changed: an error ends the transaction.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(sql::DIVIDED_BY_NONE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn search(&self, search: Search<'_>) -> Result<Vec<Found>, sqlx::Error> {
        let query = |text: &SqlStr| sqlx::query(text.clone()).persistent(self.persistent);
        let query = match search {
            Search::Key { scope, key, endpoint } => query(&self.texts.find).bind(scope).bind(key).bind(endpoint),
            Search::Stuck { older_than, limit } => {
                query(&self.texts.stuck).bind(microseconds(older_than)).bind(i64::from(limit))
            }
        };
        self.fetch(query).await?.iter().map(found).collect()
    }

    async fn operate(&self, owner: &Owner, fence: i64, operation: Operation<'_>) -> Result<bool, sqlx::Error> {
        let query = match operation {
            Operation::Release => self.owned(&self.texts.release, owner).bind(fence),
            Operation::Settle(stored) => self
                .owned(&self.texts.settle_as, owner)
                .bind(fence)
                .bind(microseconds(stored.retention))
                .bind(stored.answer),
            Operation::Forget { completed } => {
                self.owned(&self.texts.forget, owner).bind(fence).bind(i16::from(completed))
            }
        };
        self.changed(query).await
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, sqlx::Error> {
        stats::leases(&self.pool, &self.schema, most).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, sqlx::Error> {
        // Planned anew: a plan for any limit reads the whole table.
        let query = sqlx::query(self.texts.purge.clone()).persistent(false).bind(i64::from(limit));
        alone::execute(&self.pool, false, query).await
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, sqlx::Error> {
        purge::batch(&self.pool, &self.schema, self.persistent, &[&self.texts.purge], limit).await
    }
}

fn seen(row: &PgRow, state: i16) -> Result<Seen, sqlx::Error> {
    Ok(Seen {
        completed: state == 1,
        fingerprint: row.try_get("fingerprint")?,
        token: row.try_get("token")?,
        held: row.try_get("held")?,
        expired: row.try_get("expired")?,
        ended: row.try_get("ended")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        granted: granted(row)?,
    })
}

fn granted(row: &PgRow) -> Result<Granted, sqlx::Error> {
    Ok(Granted {
        fence: row.try_get("fence")?,
        attempt: row.try_get("attempt")?,
        checkpoint: checkpoint(row.try_get("checkpoint_step")?, row.try_get("checkpoint")?),
    })
}

fn found(row: &PgRow) -> Result<Found, sqlx::Error> {
    Ok(Found {
        lookup: [row.try_get("scope")?, row.try_get("id_key")?, row.try_get("endpoint")?],
        completed: row.try_get::<i16, _>("state")? == 1,
        token: row.try_get("token")?,
        fence: row.try_get("fence")?,
        attempt: row.try_get("attempt")?,
        held: row.try_get("held")?,
        age: row.try_get("age")?,
        expires_in: row.try_get("expires_in")?,
        lease_left: row.try_get("lease_left")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        step: row.try_get("checkpoint_step")?,
    })
}
