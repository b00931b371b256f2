//! The transactional store on MariaDB 10.6 and MySQL 8.0, or newer.

mod ask;
mod builder;
mod claim;
mod operate;
mod settle;
mod unkeyed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{MySql, MySqlPool};

use super::{ClaimRequest, Purge, Store, Unkeyed, Verdict};
use crate::db::begin::{begin, undisturbed};
use crate::db::fault::in_claim;
use crate::db::migrate;
use crate::db::mysql::session::Session;
use crate::db::mysql::statements::Statements;
use crate::db::mysql::{Flavor, lock, sql};
use crate::db::sql::SchemaName;
use crate::error::{Error, ErrorKind};
use crate::policy::State;
use crate::purge::Batch;

pub use builder::MySqlStoreBuilder;
pub use claim::MySqlClaim;
use unkeyed::MySqlUnkeyed;

/// Rows that one transaction of a purge deletes.
const BATCH: u32 = 500;

/// A row's state while its claim is open.
const RUNNING: i16 = 0;

/// Keeps keys in MariaDB 10.6 or MySQL 8.0, or newer: the claim, what the handler writes through its
/// [`Tx`](crate::Tx), and the stored answer are one transaction. A service that dies in the middle leaves nothing behind,
/// and its keys are free at once.
///
/// A second request with a running key gets its answer at once, without waiting on the first one's row. On MariaDB the
/// claim is an upsert that does not wait, and a first request takes three round trips (BEGIN, claim, settlement with
/// COMMIT). On MySQL a named lock stands before the row, and it takes four. One connection of the pool is held from the
/// claim to the commit; size the pool by the number of guarded requests you want to run at once.
///
/// The tables must be InnoDB. Where the binary log is written, its format must be ROW or MIXED.
#[derive(Clone)]
pub struct MySqlStore {
    shared: Arc<Shared>,
}

struct Shared {
    pool: MySqlPool,
    schema: SchemaName,
    statements: Statements,
    flavor: Flavor,
    begin: &'static str,
    settle_timeout: Duration,
}

impl MySqlStore {
    /// A store on the tables of the pool's database, under READ COMMITTED.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup) for a server that is too old or read-only, or a pool without a
    /// database; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if it cannot be reached. Whether the tables
    /// are there is not asked: without them every claim fails with `Setup`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn new(pool: MySqlPool) -> Result<Self, Error> {
        Self::builder(pool).build().await
    }

    /// For another database, isolation level or timeout.
    pub fn builder(pool: MySqlPool) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(pool)
    }

    /// Creates the database and the tables, or brings them to the newest version. Any number of processes may call it at
    /// once.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup) where the account may not create tables;
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the server cannot be reached, or another process
    /// migrates for longer than a minute.
    ///
    /// # Cancel safety
    /// A dropped call is finished on its own. A definition cannot be undone here: each migration is written so that it
    /// may run again.
    pub async fn migrate(&self) -> Result<(), Error> {
        migrate::mysql(&self.shared.pool, &self.shared.schema).await
    }

    /// The SQL of one migration, for hosts that keep their own history, from 1. `None` past the newest.
    /// `schema` is quoted as an identifier; without it the tables go to the session's database.
    #[must_use]
    pub fn schema_sql(version: usize, schema: Option<&str>) -> Option<String> {
        migrate::schema_sql(sql::MIGRATIONS, version, schema, SchemaName::mysql)
    }
}

impl Shared {
    fn session(&self, request: &ClaimRequest) -> Session {
        let name = match self.flavor {
            Flavor::NoWait => None,
            Flavor::NamedLock => Some(lock::name(self.schema.as_str(), request.lookup().digest())),
        };
        Session::new(self.pool.clone(), name, request.token().as_bytes())
    }

    /// One batch of a purge.
    async fn purge(self: Arc<Self>, limit: u32) -> Result<u64, sqlx::Error> {
        let mut transaction = begin(&self.pool, sql::BEGIN_OWN).await?;
        let purged = self.statements.purge(&mut transaction, limit).await?;
        transaction.commit().await?;
        Ok(purged)
    }
}

impl Store for MySqlStore {
    type Claim = MySqlClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<MySqlClaim>, Error> {
        ask::ask(&self.shared, request).await
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        Some(Box::new(MySqlUnkeyed::new(self.shared.pool.clone(), self.shared.begin, self.shared.settle_timeout)))
    }
}

impl Purge for MySqlStore {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        let mut purged = 0;
        let mut left = limit;
        while left > 0 {
            let batch = left.min(BATCH);
            let gone = undisturbed(Arc::clone(&self.shared).purge(batch)).await.map_err(in_claim::<MySql>)?;
            purged += gone;
            if gone < u64::from(batch) {
                break;
            }
            left -= batch;
        }
        Ok(purged)
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        let Shared { pool, schema, statements, .. } = &*self.shared;
        statements.purge_batch(pool, schema, limit).await.map_err(in_claim::<MySql>)
    }
}

/// What a committed row's number says.
fn state_of(column: i16) -> Result<State, Error> {
    Ok(match column {
        1 => State::Completed,
        // A running row that is committed was committed by its own handler (H29).
        RUNNING | 2 => State::Orphaned,
        _ => return Err(ErrorKind::Unreadable.into()),
    })
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStore").field("schema", &self.shared.schema.as_str()).finish_non_exhaustive()
    }
}
