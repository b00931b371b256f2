//! The transactional store on Postgres 13 or newer.

mod builder;
mod claim;
mod completed;
mod operate;
mod unkeyed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgPool, Postgres};

use super::{ClaimRequest, Purge, Store, Unkeyed, Verdict, stored};
use crate::db::begin::begin;
use crate::db::fault::{Fault, fault, in_claim};
use crate::db::migrate;
use crate::db::postgres::statements::{Bounds, Seen, Statements, Wanted};
use crate::db::postgres::{Locks, sql};
use crate::db::slot::Slot;
use crate::db::sql::SchemaName;
use crate::error::{Error, ErrorKind};
use crate::policy::State;
use crate::purge::Batch;

pub use builder::PostgresStoreBuilder;
pub use claim::PostgresClaim;
use completed::Completed;
use unkeyed::PostgresUnkeyed;

/// How often a claim that met a record committed after its snapshot asks again.
const ASKED_AGAIN: usize = 3;

/// Keeps keys in Postgres: the claim, what the handler writes through its [`Tx`](crate::Tx), and the stored answer are
/// one transaction. A service that dies in the middle leaves nothing behind, and its keys are free at once.
///
/// A second request with a running key gets its answer at once, without waiting on the first one's row: the claim
/// rides on transaction-level advisory locks, so it works behind PgBouncer in transaction mode too.
///
/// Four round trips for a first request (BEGIN, claim, settle, COMMIT). One connection of the pool is held from the
/// claim to the commit; size the pool by the number of guarded requests you want to run at once.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    pool: PgPool,
    schema: SchemaName,
    statements: Statements,
    begin: &'static str,
    begin_unkeyed: &'static str,
    strict: bool,
    bounds: Bounds,
    settle_timeout: Duration,
    /// Off where a statement outside a transaction has no place (S10, S12).
    peeks: bool,
    completed: Completed,
}

impl PostgresStore {
    /// A store on the tables that the pool's search path leads to, under READ COMMITTED.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for a server before 13, a read-only replica, or a search path that leads nowhere;
    /// [`ErrorKind::Unavailable`] if it cannot be reached. Whether the tables are there is not asked: without them
    /// every claim fails with [`ErrorKind::Setup`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn new(pool: PgPool) -> Result<Self, Error> {
        Self::builder(pool).build().await
    }

    /// For another schema, isolation level or timeout.
    pub fn builder(pool: PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(pool)
    }

    /// Creates the schema and the tables, or brings them to the newest version. Any number of processes may call it at
    /// once.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] where the role may not create tables; [`ErrorKind::Unavailable`] if the server cannot be
    /// reached.
    ///
    /// # Cancel safety
    /// Each migration is one transaction: dropped, it is done or undone, and the next call goes on from there.
    pub async fn migrate(&self) -> Result<(), Error> {
        migrate::postgres(&self.shared.pool, &self.shared.schema).await
    }

    /// The SQL of one migration, for hosts that keep their own history, from 1. `None` past the newest.
    /// `schema` is quoted as an identifier; without it the tables go where the search path leads.
    #[must_use]
    pub fn schema_sql(version: usize, schema: Option<&str>) -> Option<String> {
        migrate::schema_sql(sql::MIGRATIONS, version, schema, SchemaName::new)
    }
}

impl Shared {
    fn locks(&self, request: &ClaimRequest) -> Locks {
        Locks::new(self.schema.as_str(), request.lookup().digest(), request.fingerprint())
    }

    /// A key that was done a moment ago most likely still is: its row is read without a transaction. `None`: claim it.
    async fn peek(&self, request: &ClaimRequest) -> Result<Option<Verdict<PostgresClaim>>, Error> {
        let digest = request.lookup().digest();
        if !self.peeks || !self.completed.contains(digest) {
            return Ok(None);
        }
        let mut connection = self.pool.acquire().await.map_err(in_claim::<Postgres>)?;
        let seen = self.statements.peek(&mut connection, request.lookup()).await.map_err(in_claim::<Postgres>)?;
        match seen {
            Some(Seen::Row { state, fingerprint, answer }) => {
                stored::verdict(request, state_of(state)?, &fingerprint, answer).map(Some)
            }
            _ => {
                self.completed.remove(digest);
                Ok(None)
            }
        }
    }

    /// One transaction's worth of asking. `None`: ask in a new one.
    async fn ask(self: &Arc<Self>, request: &ClaimRequest) -> Result<Option<Verdict<PostgresClaim>>, Error> {
        let mut transaction = begin(&self.pool, self.begin).await.map_err(in_claim::<Postgres>)?;
        let wanted = Wanted {
            lookup: request.lookup(),
            locks: self.locks(request),
            fingerprint: request.fingerprint(),
            token: request.token(),
            retention: request.retention(),
            bounds: self.bounds,
        };
        let claimed = |transaction, row| {
            let slot = Slot::begun(transaction);
            Verdict::Claimed(PostgresClaim::new(Arc::clone(self), request.clone(), slot, row))
        };
        let statements = &self.statements;
        if let Some(row) = statements.claim_new(&mut transaction, &wanted).await.map_err(in_claim::<Postgres>)? {
            return Ok(Some(claimed(transaction, row)));
        }
        // Under READ COMMITTED each statement has a snapshot of its own; above, only a new transaction has.
        let times = if self.strict { 1 } else { ASKED_AGAIN };
        for _ in 0..times {
            let verdict = match statements.claim(&mut transaction, &wanted).await {
                Err(error) if self.strict && fault::<Postgres>(&error) == Fault::Conflict => return Ok(None),
                Err(error) => return Err(in_claim::<Postgres>(error)),
                Ok(Seen::Unseen) => continue,
                Ok(Seen::Claimed(row)) => return Ok(Some(claimed(transaction, row))),
                Ok(Seen::Held { other: true }) => Verdict::Mismatch,
                Ok(Seen::Held { other: false }) => Verdict::InProgress { retry_after: None },
                Ok(Seen::Row { state, fingerprint, answer }) => {
                    stored::verdict(request, state_of(state)?, &fingerprint, answer)?
                }
            };
            if matches!(verdict, Verdict::Replay(_)) {
                self.completed.insert(request.lookup().digest());
            }
            // The transaction is dropped, not rolled back in this request's time: no row was written in it. Until then it
            // may hold K.
            return Ok(Some(verdict));
        }
        Ok(None)
    }
}

/// The state of a live row.
fn state_of(column: i16) -> Result<State, Error> {
    match column {
        1 => Ok(State::Completed),
        // A running row that another transaction can see was committed by its own handler (H29).
        0 | 2 => Ok(State::Orphaned),
        _ => Err(ErrorKind::Unreadable.into()),
    }
}

impl Store for PostgresStore {
    type Claim = PostgresClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<PostgresClaim>, Error> {
        if let Some(verdict) = self.shared.peek(request).await? {
            return Ok(verdict);
        }
        let transactions = if self.shared.strict { ASKED_AGAIN } else { 1 };
        for _ in 0..transactions {
            if let Some(verdict) = self.shared.ask(request).await? {
                return Ok(verdict);
            }
        }
        Ok(Verdict::InProgress { retry_after: None })
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        let shared = &self.shared;
        let unkeyed = PostgresUnkeyed::new(shared.pool.clone(), shared.begin_unkeyed, shared.settle_timeout);
        Some(Box::new(unkeyed))
    }
}

impl Purge for PostgresStore {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        let mut transaction = begin(&self.shared.pool, sql::BEGIN).await.map_err(in_claim::<Postgres>)?;
        let purged = self.shared.statements.purge(&mut transaction, limit).await.map_err(in_claim::<Postgres>)?;
        transaction.commit().await.map_err(in_claim::<Postgres>)?;
        Ok(purged)
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        let Shared { pool, schema, statements, .. } = &*self.shared;
        statements.purge_batch(pool, schema, limit).await.map_err(in_claim::<Postgres>)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.shared.schema.as_str()).finish_non_exhaustive()
    }
}
