//! Leases on MySQL and MariaDB: how the texts are run.
//!
//! Each change is one compare-and-set by primary key, whose found row says that it was applied. On MariaDB it gives up
//! where it would wait. MySQL has no wait of zero for an UPDATE: there the row is locked by NOWAIT before, in a transaction
//! of its own. A new key is a plain INSERT after a look, and error 1062 says that somebody else was first.

mod rows;
pub(super) mod sql;

pub(super) use rows::text;

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySql, MySqlConnection, MySqlPool, Row, SqlStr};

use super::call::{Bound, call, change_without_waiting, is_found};
use super::inspect::{Inspected, inspect};
use super::purge::{batch, by_hand};
use super::sql::{END_FOR_GOOD, NO_WAIT};
use super::statements::bound;
use super::{Flavor, says_duplicate, stats};
use crate::db::fault::{Fault, fault, in_claim};
use crate::db::lease::{
    Asked, Change, Found, Granted, LeaseDialect, NOBODY, NewLease, Operation, Owner, Search, Seen, Standing, Stored,
    Table, Take, is_outermost, microseconds,
};
use crate::db::migrate;
use crate::db::sql::{SchemaName, mysql_no_wait};
use crate::error::Error;
use crate::lookup::LookupKey;
use crate::purge::Batch;
use crate::store::KeyStats;
use sql::Texts;

impl LeaseDialect for MySql {
    type Table = MySqlLeases;
}

/// The table of one database.
#[expect(unnameable_types, reason = "part of the sealed trait `LeaseDialect`")]
#[derive(Debug)]
pub struct MySqlLeases {
    pool: MySqlPool,
    schema: SchemaName,
    flavor: Flavor,
    texts: Arc<Texts>,
}

fn query(text: &SqlStr) -> Bound {
    sqlx::query(text.clone())
}

fn owned(query: Bound, owner: &Owner) -> Bound {
    bound(query, &owner.lookup).bind(owner.token.as_bytes().to_vec())
}

fn is_conflict(error: &sqlx::Error) -> bool {
    fault::<MySql>(error) == Fault::Conflict
}

impl MySqlLeases {
    /// As on this kind of server, or as on MySQL where a test wants it so.
    pub(crate) async fn open_as(pool: MySqlPool, schema: Option<&str>, like_mysql: bool) -> Result<Self, Error> {
        let Inspected { flavor, schema, .. } = inspect(&pool, schema.map(str::to_owned)).await?;
        let flavor = if like_mysql { Flavor::NamedLock } else { flavor };
        let prefix = match flavor {
            Flavor::NoWait => NO_WAIT,
            Flavor::NamedLock => "",
        };
        let texts = Arc::new(Texts::new(|template| mysql_no_wait(template, &schema, prefix)));
        Ok(Self { pool, schema, flavor, texts })
    }

    async fn fetch(&self, query: Bound) -> Result<Vec<MySqlRow>, sqlx::Error> {
        call(&self.pool, move |connection| Box::pin(query.fetch_all(connection))).await
    }

    /// Whether the row was as the statement says, and is changed. An error of a conflict where somebody has locked it.
    async fn update(&self, lookup: &LookupKey, change: Bound) -> Result<bool, sqlx::Error> {
        let lock = bound(query(&self.texts.lock), lookup);
        change_without_waiting(&self.pool, self.flavor, lock, change).await
    }

    fn owners(&self, owner: &Owner, change: &Change<'_>) -> Bound {
        let texts = &self.texts;
        let change = match *change {
            Change::Renew(lease) => query(&texts.renew).bind(microseconds(lease)).bind(microseconds(lease)),
            Change::Dispatch { held } => query(&texts.dispatch).bind(held),
            Change::Settle(stored) => settled(query(&texts.settle), stored),
            Change::Abandon => query(&texts.abandon).bind(NOBODY.to_vec()),
            Change::Stop => query(&texts.stop),
        };
        owned(change, owner)
    }
}

fn settled(query: Bound, Stored { answer, retention }: Stored<'_>) -> Bound {
    query.bind(answer.to_vec()).bind(microseconds(retention))
}

impl Table for MySqlLeases {
    type Engine = MySql;

    async fn open(pool: MySqlPool, schema: Option<&str>) -> Result<Self, Error> {
        Self::open_as(pool, schema, false).await
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrate::mysql(&self.pool, &self.schema).await
    }

    fn error(error: sqlx::Error) -> Error {
        in_claim::<MySql>(error)
    }

    /// A look, and an INSERT where there is nothing: nobody who repeats a request locks its row.
    async fn ask(&self, lease: &NewLease<'_>) -> Result<Asked, sqlx::Error> {
        if let Some(row) = self.fetch(bound(query(&self.texts.look), lease.lookup)).await?.first() {
            return rows::seen(row).map(Asked::Seen);
        }
        let insert = bound(query(&self.texts.insert), lease.lookup)
            .bind(lease.fingerprint.to_bytes().to_vec())
            .bind(lease.token.as_bytes().to_vec())
            .bind(lease.held)
            .bind(microseconds(lease.lease))
            .bind(microseconds(lease.lease.max(lease.retention)));
        match call(&self.pool, move |connection| Box::pin(insert.execute(connection))).await {
            Ok(done) => {
                let fence = i64::try_from(done.last_insert_id()).map_err(|error| sqlx::Error::Decode(error.into()))?;
                Ok(Asked::Granted(Granted { fence, attempt: 1, checkpoint: None }))
            }
            Err(error) if says_duplicate(&error) => Ok(Asked::Unseen),
            Err(error) => Err(error),
        }
    }

    async fn take(&self, lease: &NewLease<'_>, seen: &Seen, how: Take) -> Result<Option<Granted>, sqlx::Error> {
        let (lasts, kept) = (microseconds(lease.lease), microseconds(lease.retention));
        let text = match how {
            Take::Over => &self.texts.take_over,
            Take::Afresh => &self.texts.take_afresh,
        };
        let take = query(text)
            .bind(lease.fingerprint.to_bytes().to_vec())
            .bind(lease.token.as_bytes().to_vec())
            .bind(lease.held)
            .bind(lasts);
        let take = match how {
            Take::Over => take.bind(kept).bind(lasts),
            Take::Afresh => take.bind(kept.max(lasts)),
        };
        let take = bound(take, lease.lookup).bind(seen.token.clone()).bind(seen.granted.fence);
        match self.update(lease.lookup, take).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if is_conflict(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        // Read after it: the last owner may have left a checkpoint since it was looked at.
        let own = bound(query(&self.texts.own), lease.lookup).bind(lease.token.as_bytes().to_vec());
        self.fetch(own).await?.first().map(rows::granted).transpose()
    }

    async fn change(&self, owner: &Owner, wanted: Change<'_>) -> Result<bool, sqlx::Error> {
        let error = match self.update(&owner.lookup, self.owners(owner, &wanted)).await {
            Err(error) if is_conflict(&error) => error,
            done => return done,
        };
        // Somebody has locked the row. That may be a later owner, whose end is not this one's to wait for.
        if matches!(wanted, Change::Renew(_)) || self.standing(owner).await? != Some(Standing::Running) {
            return Ok(false);
        }
        Err(error)
    }

    async fn standing(&self, owner: &Owner) -> Result<Option<Standing>, sqlx::Error> {
        let rows = self.fetch(owned(query(&self.texts.standing), owner)).await?;
        let standing =
            |row: &MySqlRow| Ok(if row.try_get::<i16, _>(0)? == 0 { Standing::Running } else { Standing::Completed });
        rows.first().map(standing).transpose()
    }

    /// An error undoes a statement here, not a transaction; and after a deadlock the server goes on without one. So
    /// whatever keeps the row from being held ends the handler's session: what it wrote is undone, and it can write
    /// nothing more.
    async fn hold(
        &self,
        connection: &mut MySqlConnection,
        owner: &Owner,
        lease: Duration,
        step: Option<(&str, &[u8])>,
    ) -> Result<bool, sqlx::Error> {
        is_outermost::<MySql>(connection)?;
        let hold = match step {
            None => query(&self.texts.guard),
            Some((step, state)) => query(&self.texts.checkpoint).bind(step.as_bytes().to_vec()).bind(state.to_vec()),
        };
        let lease = microseconds(lease);
        let held = owned(hold.bind(lease).bind(lease), owner).execute(&mut *connection).await;
        if let Ok(done) = &held
            && is_found(done)
        {
            return Ok(true);
        }
        // It answers with an error, or not at all.
        let _ = sqlx::raw_sql(END_FOR_GOOD).execute(connection).await;
        held.map(|_| false)
    }

    async fn search(&self, search: Search<'_>) -> Result<Vec<Found>, sqlx::Error> {
        let search = match search {
            Search::Key { scope, key, endpoint } => {
                let endpoint = endpoint.map(|endpoint| endpoint.as_bytes().to_vec());
                let find = query(&self.texts.find).bind(scope.as_bytes().to_vec()).bind(key.as_bytes().to_vec());
                find.bind(endpoint.clone()).bind(endpoint)
            }
            Search::Stuck { older_than, limit } => query(&self.texts.stuck).bind(microseconds(older_than)).bind(limit),
        };
        self.fetch(search).await?.iter().map(rows::found).collect()
    }

    async fn operate(&self, owner: &Owner, fence: i64, operation: Operation<'_>) -> Result<bool, sqlx::Error> {
        let change = match operation {
            Operation::Release => owned(query(&self.texts.release), owner).bind(fence),
            Operation::Settle(stored) => owned(settled(query(&self.texts.settle_as), stored), owner).bind(fence),
            Operation::Forget { completed } => {
                owned(query(&self.texts.forget), owner).bind(fence).bind(i16::from(completed))
            }
        };
        match self.update(&owner.lookup, change).await {
            Err(error) if is_conflict(&error) => Ok(false),
            done => done,
        }
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, sqlx::Error> {
        stats::leases(&self.pool, &self.schema, most).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, sqlx::Error> {
        by_hand(&self.pool, &self.texts.lock_expired, &self.texts.delete_expired, limit).await
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, sqlx::Error> {
        let texts = vec![(self.texts.lock_expired.clone(), self.texts.delete_expired.clone())];
        batch(&self.pool, &self.schema, texts, limit).await
    }
}
