//! Leases in a SQL table, for handlers that call somebody else (S20–S24). One algorithm; what engines differ in is
//! behind [`Table`].

mod attempt;
mod claim;
mod operate;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{ClaimRequest, OnUnknown, Purge, Store, Verdict, stored};
use crate::db::LeaseDialect;
use crate::db::lease::{Asked, Granted, NewLease, Owner, Table, Take};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::policy::{Judgement, State, judge};
use crate::purge::Batch;
#[cfg(doc)]
use crate::store::Fence;
use claim::Control;

pub use attempt::Resumed;
pub use claim::LeaseClaim;

/// How often a claim looks at its key: whoever meets a row that changes under its hands looks again.
const LOOKS: u32 = 4;
/// How often it asks again after an answer that did not come.
const LOST: u32 = 2;
/// How long a claim is held without a renewal unless it is told otherwise.
const LEASE: Duration = Duration::from_secs(30);
/// How long one call may take unless it is told otherwise.
const LIMIT: Duration = Duration::from_secs(5);

/// Keeps keys in a SQL table by *leases*: for handlers that call somebody else, where no transaction can hold what they
/// do. On Postgres, MySQL and MariaDB, and SQLite files.
///
/// The claim is committed before the handler runs and renewed while it does; what the handler writes is not part of it.
/// If the process dies, the lease ends by itself, and the next request with the key runs as the next attempt, with a
/// larger [`Fence`], or is told 409 `outcome-unknown` until an operator has looked: see [`OnUnknown`] and
/// [`Attempt::dispatching`](crate::Attempt::dispatching). A handler that calls somebody else without `dispatching` runs
/// **at least once**.
///
/// Where an attempt also writes to the same database, [`Attempt::guard`](crate::Attempt::guard) keeps an owner that has
/// lost its lease from committing, and [`Attempt::checkpoint`](crate::Attempt::checkpoint) keeps how far it has come.
/// The layer lends no [`Tx`](crate::Tx) here: begin a transaction of your own.
///
/// Every instant is the database's. One round trip claims a new key and one settles it; a replay is one, a take-over two.
/// (MariaDB: two for a new key, three for a take-over. MySQL: three more for each change of a row.)
/// No statement waits for a rival. On Postgres none needs more than one table and INSERT … ON CONFLICT, UPDATE and
/// SELECT … FOR UPDATE SKIP LOCKED.
///
/// Renewals use the pool that the store was made of. On a server give it a pool of its own, or one in which handlers do
/// not hold every connection: a renewal that finds none is a lost one. On SQLite it has connections of its own, but each
/// claim, renewal and settlement is a durable write in a file that has one writer at a time: a handler that holds the
/// write lock for longer than a lease lets the leases of all others end.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn doc(pool: sqlx::PgPool) -> Result<(), idempotency::Error> {
/// use std::time::Duration;
/// use idempotency::{IdempotencyLayer, LeaseStore, Scope, store::OnUnknown};
///
/// let store = LeaseStore::new(pool).await?;
/// store.migrate().await?;
/// let payouts = IdempotencyLayer::new(store.clone(), Scope::shared());
/// // The same table, other settings.
/// let reports = store.lease(Duration::from_secs(120))?.on_unknown(OnUnknown::Rerun);
/// let reports = IdempotencyLayer::new(reports, Scope::shared());
/// # Ok(())
/// # }
/// ```
pub struct LeaseStore<DB: LeaseDialect> {
    shared: Arc<Shared<DB>>,
    lease: Duration,
    on_unknown: OnUnknown,
    limit: Duration,
}

impl<DB: LeaseDialect> LeaseStore<DB> {
    /// A store on the table that the pool leads to, with leases of 30 s. A SQLite pool must be made with
    /// [`SqliteStore::connect_options`](crate::SqliteStore::connect_options).
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for a server or a file that does not fit: Postgres before 13, MariaDB before 10.6, MySQL before
    /// 8.0, a read-only replica, a search path or a pool that leads to no schema, SQLite in memory or without WAL. [`ErrorKind::Unavailable`] if it cannot be reached.
    /// Whether the table is there is not asked: without it every claim fails with [`ErrorKind::Setup`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn new(pool: Pool<DB>) -> Result<Self, Error> {
        Self::open(pool, None).await
    }

    /// A store on the table of one schema, or database of MySQL. [`LeaseStore::new`] takes the first one on the search path,
    /// or the database of the pool's sessions, once.
    ///
    /// # Errors
    /// As [`LeaseStore::new`], and [`ErrorKind::Setup`] for what cannot be a schema's name, and on SQLite, which has none.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn in_schema(pool: Pool<DB>, schema: &str) -> Result<Self, Error> {
        Self::open(pool, Some(schema)).await
    }

    async fn open(pool: Pool<DB>, schema: Option<&str>) -> Result<Self, Error> {
        Ok(Self::on(DB::Table::open(pool, schema).await?))
    }

    fn on(table: DB::Table) -> Self {
        Self { shared: Arc::new(Shared { table }), lease: LEASE, on_unknown: OnUnknown::default(), limit: LIMIT }
    }

    /// Creates the tables, or brings them to the newest version: those of the transactional store on the same engine
    /// too, whose history they share. Any number of processes may call it at once.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] where the role may not create tables; [`ErrorKind::Unavailable`] if the database cannot be
    /// reached.
    ///
    /// # Cancel safety
    /// Each migration is one transaction: dropped, it is done or undone, and the next call goes on from there.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.shared.table.migrate().await
    }

    /// How long a claim is held without a renewal. The layer renews at a third of it. A clone with another lease shares
    /// the table: one store, a lease for each route.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for less than 3 ms: a lease of zero would hold nothing (S5).
    pub fn lease(self, lease: Duration) -> Result<Self, Error> {
        if lease < Duration::from_millis(3) {
            return Err(Error::with_source(ErrorKind::Setup, "a lease must last at least 3 ms"));
        }
        Ok(Self { lease, ..self })
    }

    /// What follows an attempt whose lease has ended without a settlement. A clone with another choice shares the table.
    #[must_use]
    pub fn on_unknown(self, on_unknown: OnUnknown) -> Self {
        Self { on_unknown, ..self }
    }

    /// How long one call may take (5 s), waiting for a connection included: a database that has stopped answering is
    /// [`ErrorKind::Unavailable`] then.
    #[must_use]
    pub fn call_timeout(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    async fn ask(&self, request: &ClaimRequest) -> Result<Verdict<LeaseClaim<DB>>, Error> {
        let (mut looks, mut lost, mut conflicts) = (0, 0, 0_u32);
        while looks < LOOKS {
            match self.step(request).await {
                Ok(Some(verdict)) => return Ok(verdict),
                Ok(None) => looks += 1,
                // What was sent may have been done; the next look recognises its own token (S6).
                Err(error) if lost < LOST && error.kind() == ErrorKind::Unavailable => lost += 1,
                // Where a pool's default is SERIALIZABLE, claims of different keys can be in each other's way. One of
                // them gets through each time; the limit of the call ends it.
                Err(error) if error.kind() == ErrorKind::Conflict => conflicts = conflicts.saturating_add(1),
                Err(error) => return Err(error),
            }
            sleep(jitter(looks.saturating_add(lost).saturating_add(conflicts))).await;
        }
        Ok(Verdict::InProgress { retry_after: None })
    }

    /// One look at the key, and one step. `None`: it has changed meanwhile, or somebody has locked it.
    async fn step(&self, request: &ClaimRequest) -> Result<Option<Verdict<LeaseClaim<DB>>>, Error> {
        let table = &self.shared.table;
        let lease = NewLease {
            lookup: request.lookup(),
            fingerprint: request.fingerprint(),
            token: request.token(),
            lease: self.lease,
            retention: request.retention(),
            held: self.on_unknown.holds_from_start(),
        };
        let seen = match table.ask(&lease).await.map_err(DB::Table::error)? {
            Asked::Granted(granted) => return Ok(Some(Verdict::Claimed(self.granted(request, granted)))),
            Asked::Unseen => return Ok(None),
            Asked::Seen(seen) => seen,
        };
        if seen.token == request.token().as_bytes() && !seen.completed {
            return Ok(Some(Verdict::Claimed(self.granted(request, seen.granted))));
        }
        let how = if seen.expired {
            Take::Afresh
        } else {
            let stored = Fingerprint::from_bytes(&seen.fingerprint).ok_or(ErrorKind::Unreadable)?;
            match judge(state(seen.completed, seen.ended, seen.held), stored::compare(request, &stored)) {
                Judgement::TakeOver => Take::Over,
                told => return stored::told(told, stored, seen.answer).map(Some),
            }
        };
        let taken = table.take(&lease, &seen, how).await.map_err(DB::Table::error)?;
        Ok(taken.map(|granted| Verdict::Claimed(self.granted(request, granted))))
    }

    fn granted(&self, request: &ClaimRequest, granted: Granted) -> LeaseClaim<DB> {
        let owner = Owner { lookup: request.lookup().clone(), token: request.token() };
        LeaseClaim::new(Control {
            shared: Arc::clone(&self.shared),
            owner,
            granted,
            lease: self.lease,
            on_unknown: self.on_unknown,
            limit: self.limit,
        })
    }
}

#[cfg(feature = "postgres")]
impl LeaseStore<sqlx::Postgres> {
    /// The SQL of one migration, for hosts that keep their own history, from 1: see
    /// [`PostgresStore::schema_sql`](crate::PostgresStore::schema_sql), whose versions these are.
    #[must_use]
    pub fn schema_sql(version: usize, schema: Option<&str>) -> Option<String> {
        crate::PostgresStore::schema_sql(version, schema)
    }
}

#[cfg(feature = "mysql")]
impl LeaseStore<sqlx::MySql> {
    /// The SQL of one migration, for hosts that keep their own history, from 1: see
    /// [`MySqlStore::schema_sql`](crate::MySqlStore::schema_sql), whose versions these are.
    #[must_use]
    pub fn schema_sql(version: usize, schema: Option<&str>) -> Option<String> {
        crate::MySqlStore::schema_sql(version, schema)
    }

    /// Works as on MySQL, also where the server is MariaDB: for tests of that way.
    ///
    /// # Errors
    /// As [`LeaseStore::new`].
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub async fn like_mysql(pool: sqlx::MySqlPool) -> Result<Self, Error> {
        Ok(Self::on(<sqlx::MySql as LeaseDialect>::Table::open_as(pool, None, true).await?))
    }
}

#[cfg(feature = "sqlite")]
impl LeaseStore<sqlx::Sqlite> {
    /// The SQL of one migration, for hosts that keep their own history, from 1: see
    /// [`SqliteStore::schema_sql`](crate::SqliteStore::schema_sql), whose versions these are.
    #[must_use]
    pub fn schema_sql(version: usize) -> Option<&'static str> {
        crate::SqliteStore::schema_sql(version)
    }
}

/// Where a row stands.
fn state(completed: bool, ended: bool, held: bool) -> State {
    if completed { State::Completed } else { State::of_lease(ended, held) }
}

/// Up to 5 ms, doubled with each further try: rivals shall not come in step.
fn jitter(tries: u32) -> Duration {
    let [random, ..] = Uuid::new_v4().into_bytes();
    Duration::from_millis(5) * (1 << tries.clamp(1, 5)) / 2 * u32::from(random) / 255
}

impl<DB: LeaseDialect> Store for LeaseStore<DB> {
    type Claim = LeaseClaim<DB>;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<LeaseClaim<DB>>, Error> {
        // A name of its own for each call: what an earlier one may have left is a rival's (S6 holds within this call).
        let request = request.again();
        within(self.limit, self.ask(&request)).await
    }
}

impl<DB: LeaseDialect> Purge for LeaseStore<DB> {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        let purged = self.shared.table.purge(limit);
        within(self.limit, async { purged.await.map_err(DB::Table::error) }).await
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        let purged = self.shared.table.purge_batch(limit);
        within(self.limit, async { purged.await.map_err(DB::Table::error) }).await
    }
}

impl<DB: LeaseDialect> Clone for LeaseStore<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<DB: LeaseDialect> fmt::Debug for LeaseStore<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStore")
            .field("lease", &self.lease)
            .field("on_unknown", &self.on_unknown)
            .finish_non_exhaustive()
    }
}

/// What all clones of a store share.
struct Shared<DB: LeaseDialect> {
    table: DB::Table,
}

/// Gives a call up that takes too long: nothing hangs on a database that has stopped answering.
async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(limit, call).await.unwrap_or_else(|elapsed| Err(Error::with_source(ErrorKind::Unavailable, elapsed)))
}
