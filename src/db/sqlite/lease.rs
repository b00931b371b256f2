//! Leases on SQLite: how the texts are run.
//!
//! SQLite has one writer. So whatever can be told from a row is read without the write lock, and each change waits for
//! it in a queue of this process, then with short retries against others. Nobody can take a row over that is locked by
//! a transaction which guards: that transaction is the writer.

mod sql;

use std::time::Duration;

use bytes::Bytes;
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{Row, Sqlite, SqliteConnection, SqlitePool};
use tokio::time::Instant;

use super::inspect::inspect;
use super::wait::{acquire, patiently};
use super::{own_error, stats};
use crate::db::begin::begin_in_turn;
use crate::db::fault::{Fault, fault};
use crate::db::lease::{
    Asked, Change, Found, Granted, LeaseDialect, NOBODY, NewLease, Operation, Owner, Search, Seen, Standing, Stored,
    Table, Take, checkpoint, is_outermost, microseconds,
};
use crate::db::migrate;
use crate::error::{Error, ErrorKind};
use crate::lookup::LookupKey;
use crate::purge::Batch;
use crate::store::KeyStats;

/// How long a statement waits for other writers.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a claim that could take a row over waits for its turn, and then for the write lock: whoever has it may be
/// the row's owner.
const RIVAL_TURN: Duration = Duration::from_millis(250);
const RIVAL_PATIENCE: Duration = Duration::from_millis(20);
/// How long a renewal that has its turn waits for the write lock at most before it is told that the row is locked.
const RENEWAL_PATIENCE: Duration = Duration::from_millis(100);
/// Connections that read.
const DESK: u32 = 4;

impl LeaseDialect for Sqlite {
    type Table = SqliteLeases;
}

/// The tables of one file, by connections of its own.
#[expect(unnameable_types, reason = "part of the sealed trait `LeaseDialect`")]
#[derive(Debug)]
pub struct SqliteLeases {
    desk: SqlitePool,
    /// One connection: who waits for it stands in a queue.
    books: SqlitePool,
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

fn of<'q>(text: &'static str, lookup: &'q LookupKey) -> Bound<'q> {
    sqlx::query(text).bind(lookup.scope().as_str()).bind(lookup.key().as_str()).bind(lookup.endpoint().as_str())
}

fn owned<'q>(text: &'static str, owner: &'q Owner) -> Bound<'q> {
    of(text, &owner.lookup).bind(&owner.token.as_bytes()[..])
}

fn new_lease<'q>(text: &'static str, lease: &NewLease<'q>) -> Bound<'q> {
    of(text, lease.lookup)
        .bind(lease.fingerprint.to_bytes().to_vec())
        .bind(lease.token.as_bytes().to_vec())
        .bind(lease.held)
        .bind(microseconds(lease.lease))
        .bind(microseconds(lease.retention))
}

fn change<'q>(owner: &'q Owner, change: &Change<'q>) -> Bound<'q> {
    match *change {
        Change::Renew(lease) => owned(sql::RENEW, owner).bind(microseconds(lease)),
        Change::Dispatch { held } => owned(sql::DISPATCH, owner).bind(held),
        Change::Settle(Stored { answer, retention }) => {
            owned(sql::SETTLE, owner).bind(microseconds(retention)).bind(answer)
        }
        Change::Abandon => owned(sql::ABANDON, owner).bind(&NOBODY[..]),
        Change::Stop => owned(sql::STOP, owner),
    }
}

fn operate<'q>(owner: &'q Owner, fence: i64, operation: &Operation<'q>) -> Bound<'q> {
    match *operation {
        Operation::Release => owned(sql::RELEASE, owner).bind(fence),
        Operation::Settle(Stored { answer, retention }) => {
            owned(sql::SETTLE_AS, owner).bind(fence).bind(microseconds(retention)).bind(answer)
        }
        Operation::Forget { completed } => owned(sql::FORGET, owner).bind(fence).bind(i64::from(completed)),
    }
}

fn search<'q>(search: &Search<'q>) -> Bound<'q> {
    match *search {
        Search::Key { scope, key, endpoint } => sqlx::query(sql::FIND).bind(scope).bind(key).bind(endpoint),
        Search::Stuck { older_than, limit } => sqlx::query(sql::STUCK).bind(microseconds(older_than)).bind(limit),
    }
}

async fn changed(query: Bound<'_>, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

/// Whether the write lock could not be had in time.
fn is_busy(error: &sqlx::Error) -> bool {
    fault::<Sqlite>(error) == Fault::Conflict
}

impl SqliteLeases {
    async fn look(&self, lookup: &LookupKey) -> Result<Option<Seen>, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        let row =
            patiently!(until, of(sql::LOOK, lookup).fetch_optional(&mut *acquire(&self.desk, until).await?).await)?;
        row.map(|row| seen(&row)).transpose()
    }

    /// The connection that writes, in turn.
    async fn books(&self) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        acquire(&self.books, Instant::now() + PATIENCE).await
    }
}

impl Table for SqliteLeases {
    type Engine = Sqlite;

    async fn open(pool: SqlitePool, schema: Option<&str>) -> Result<Self, Error> {
        if schema.is_some() {
            return Err(Error::with_source(ErrorKind::Setup, "SQLite has no schemas"));
        }
        inspect(&pool).await?;
        let own = SqliteConnectOptions::clone(&pool.connect_options()).busy_timeout(Duration::ZERO);
        let keep = || SqlitePoolOptions::new().test_before_acquire(false).max_lifetime(None).idle_timeout(None);
        Ok(Self {
            desk: keep().max_connections(DESK).connect_lazy_with(own.clone()),
            books: keep().max_connections(1).connect_lazy_with(own),
        })
    }

    async fn migrate(&self) -> Result<(), Error> {
        let connection = self.books().await.map_err(own_error)?;
        let until = Instant::now() + PATIENCE;
        let mut transaction = begin_in_turn(connection, 0, until).await.map_err(own_error)?;
        migrate::sqlite(&mut transaction).await.map_err(own_error)?;
        transaction.commit().await.map_err(own_error)
    }

    fn error(error: sqlx::Error) -> Error {
        own_error(error)
    }

    async fn ask(&self, lease: &NewLease<'_>) -> Result<Asked, sqlx::Error> {
        if let Some(seen) = self.look(lease.lookup).await? {
            return Ok(Asked::Seen(seen));
        }
        let mut books = self.books().await?;
        let until = Instant::now() + PATIENCE;
        // To its last row: a statement that is left at its first one commits without saying whether it could.
        let rows = patiently!(until, new_lease(sql::INSERT, lease).fetch_all(&mut *books).await)?;
        Ok(match rows.first() {
            Some(row) => Asked::Granted(Granted { fence: row.try_get("fence")?, attempt: 1, checkpoint: None }),
            None => Asked::Unseen,
        })
    }

    async fn take(&self, lease: &NewLease<'_>, seen: &Seen, how: Take) -> Result<Option<Granted>, sqlx::Error> {
        let text = match how {
            Take::Over => sql::TAKE_OVER,
            Take::Afresh => sql::TAKE_AFRESH,
        };
        // An expired row is nobody's: it can be waited for as an absent one is.
        let (turn, patience) = if how == Take::Over { (RIVAL_TURN, RIVAL_PATIENCE) } else { (PATIENCE, PATIENCE) };
        let mut books = match acquire(&self.books, Instant::now() + turn).await {
            Err(sqlx::Error::PoolTimedOut) if how == Take::Over => return Ok(None),
            books => books?,
        };
        let until = Instant::now() + patience;
        let rows = patiently!(
            until,
            new_lease(text, lease).bind(&seen.token[..]).bind(seen.granted.fence).fetch_all(&mut *books).await
        );
        match rows {
            Ok(rows) => rows.first().map(granted).transpose(),
            Err(error) if how == Take::Over && is_busy(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn change(&self, owner: &Owner, wanted: Change<'_>) -> Result<bool, sqlx::Error> {
        let (is_renewal, patience) = match wanted {
            Change::Renew(lease) => (true, RENEWAL_PATIENCE.min(lease / 10)),
            _ => (false, PATIENCE),
        };
        let mut books = self.books().await?;
        let until = Instant::now() + patience;
        match patiently!(until, changed(change(owner, &wanted), &mut books).await) {
            Err(error) if is_renewal && is_busy(&error) => Ok(false),
            done => done,
        }
    }

    async fn standing(&self, owner: &Owner) -> Result<Option<Standing>, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        let row = patiently!(
            until,
            owned(sql::STANDING, owner).fetch_optional(&mut *acquire(&self.desk, until).await?).await
        )?;
        row.map(|row| Ok(if row.try_get::<i64, _>(0)? == 0 { Standing::Running } else { Standing::Completed }))
            .transpose()
    }

    async fn hold(
        &self,
        connection: &mut SqliteConnection,
        owner: &Owner,
        lease: Duration,
        step: Option<(&str, &[u8])>,
    ) -> Result<bool, sqlx::Error> {
        if !sqlx::query_scalar::<_, bool>(sql::FOREIGN_KEYS).fetch_one(&mut *connection).await? {
            return Err(sqlx::Error::Configuration("a transaction that guards needs PRAGMA foreign_keys = ON".into()));
        }
        // Only now: the count of nested transactions is current once the connection's thread has answered.
        is_outermost::<Sqlite>(connection)?;
        if changed(owned(sql::END_IF_LOST, owner), connection).await? {
            return Ok(false);
        }
        let lease = microseconds(lease);
        let query = match step {
            None => owned(sql::RENEW, owner).bind(lease),
            Some((step, state)) => owned(sql::CHECKPOINT, owner).bind(lease).bind(step).bind(state),
        };
        changed(query, connection).await
    }

    async fn search(&self, wanted: Search<'_>) -> Result<Vec<Found>, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        let rows = patiently!(until, search(&wanted).fetch_all(&mut *acquire(&self.desk, until).await?).await)?;
        rows.iter().map(found).collect()
    }

    async fn operate(&self, owner: &Owner, fence: i64, operation: Operation<'_>) -> Result<bool, sqlx::Error> {
        let mut books = self.books().await?;
        let until = Instant::now() + PATIENCE;
        patiently!(until, changed(operate(owner, fence, &operation), &mut books).await)
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        patiently!(until, stats::leases(&mut *acquire(&self.desk, until).await?, most).await)
    }

    async fn purge(&self, limit: u32) -> Result<u64, sqlx::Error> {
        let mut books = self.books().await?;
        let until = Instant::now() + PATIENCE;
        let done = patiently!(until, sqlx::query(sql::PURGE).bind(limit).execute(&mut *books).await)?;
        Ok(done.rows_affected())
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, sqlx::Error> {
        let mut books = self.books().await?;
        let purge = || sqlx::query_scalar(sql::PURGE).bind(limit);
        patiently!(Instant::now() + PATIENCE, purge().fetch_all(&mut *books).await).map(Batch::of)
    }
}

fn seen(row: &SqliteRow) -> Result<Seen, sqlx::Error> {
    Ok(Seen {
        completed: row.try_get::<i64, _>("state")? == 1,
        fingerprint: row.try_get("fingerprint")?,
        token: row.try_get("token")?,
        held: row.try_get("held")?,
        expired: row.try_get("expired")?,
        ended: row.try_get("ended")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        granted: granted(row)?,
    })
}

fn granted(row: &SqliteRow) -> Result<Granted, sqlx::Error> {
    Ok(Granted {
        fence: row.try_get("fence")?,
        attempt: row.try_get("attempt")?,
        checkpoint: checkpoint(row.try_get("checkpoint_step")?, row.try_get("checkpoint")?),
    })
}

fn found(row: &SqliteRow) -> Result<Found, sqlx::Error> {
    Ok(Found {
        lookup: [row.try_get("scope")?, row.try_get("id_key")?, row.try_get("endpoint")?],
        completed: row.try_get::<i64, _>("state")? == 1,
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
