//! The transactional store on a SQLite file.

mod claim;
mod entry;
mod lending;
mod open;
mod operate;
mod owner;
mod purge;
mod shared;
mod turn;
mod unkeyed;
mod verdict;
mod writing;

use std::fmt;
use std::ops::ControlFlow::{Break, Continue};
use std::path::Path;
use std::sync::Arc;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

use super::{ClaimRequest, Store, Unkeyed, Verdict};
use crate::db::migrate;
use crate::db::sqlite::sql;
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use entry::Entry;
use shared::Shared;
use unkeyed::SqliteUnkeyed;
use verdict::judge_row;

pub use claim::SqliteClaim;

/// How often a claim whose announcement came to nothing looks again.
const ASKED_AGAIN: usize = 3;

/// Keeps keys in a SQLite file: what the handler writes through its [`Tx`](crate::Tx) and the stored answer are one
/// transaction. A process that dies in the middle leaves nothing behind, and its keys are free at once.
///
/// The claim itself is a small committed row, an *announcement*, which is worth as much as its owner lives: each store
/// holds a lock on a file `<database>.idem-<id>.lock` beside the database while it lives. So a second request with a
/// running key, in whatever process, gets its answer at once and without the database's write lock. (Leave these files
/// alone: a process whose lock file is deleted counts as dead, and its handlers that have not begun to write lose their
/// keys to the next request. Never do two requests write for one key: that is decided under the write lock.)
///
/// # When to write
/// SQLite has one writer at a time. The write lock is taken when the handler first takes its `Tx`, reads included, and
/// is held until the answer is stored; every other writer of the file waits meanwhile. Do slow work before that.
///
/// **Inside a guarded request every write goes through `Tx`.** A write through the pool, once the request has taken its
/// `Tx`, waits for the request's own lock, until the pool's busy timeout ends it with "database is locked" (code 5);
/// and a transaction of your own that is open when the `Tx` is taken makes that fail with
/// [`ErrorKind::Unavailable`] after 5 s. Reads through the pool are free at any time.
///
/// Guarded requests queue up in order of arrival. A second store on the same file, in this process or another, takes
/// turns with the first by short retries.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

impl SqliteStore {
    /// A store on the file at `path`, created if need be, with a pool of its own for the handlers. The folder must
    /// exist. Call [`SqliteStore::migrate`] next.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for a file that cannot be opened or written, and for a database in memory, which cannot be
    /// shared.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most an empty database file.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        open::open(path.as_ref()).await.map(|shared| Self { shared })
    }

    /// A store on a pool of yours, which must be in WAL mode with `synchronous` FULL or EXTRA and normal locking:
    /// make it with [`SqliteStore::connect_options`].
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] where it is not, or is in memory, or SQLite is older than 3.42.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn new(pool: SqlitePool) -> Result<Self, Error> {
        open::build(pool).await.map(|shared| Self { shared })
    }

    /// How to connect to the file at `path`: created if missing, WAL, `synchronous=FULL`, foreign keys checked, and a
    /// busy timeout of 5 s for writes of your own.
    #[must_use]
    pub fn connect_options(path: impl AsRef<Path>) -> SqliteConnectOptions {
        open::connect_options(path.as_ref())
    }

    /// The pool that handlers' transactions come from, for reads and for writes outside guarded requests.
    #[must_use]
    pub fn pool(&self) -> &SqlitePool {
        &self.shared.pool
    }

    /// Closes the store's own connections, and the pool: the last process that does so leaves no `-wal` file behind.
    /// Call it when no request is running any more.
    ///
    /// # Cancel safety
    /// Dropped, some of them may be closed and others not. Call it again.
    pub async fn close(&self) {
        self.shared.close().await;
    }

    /// Creates the tables, or brings them to the newest version. Any number of processes may call it at once.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] where the file cannot be written; [`ErrorKind::Unavailable`] or [`ErrorKind::Conflict`] where
    /// somebody else writes for more than 5 s.
    ///
    /// # Cancel safety
    /// Once it has begun it goes on to its end, on a task of its own.
    pub async fn migrate(&self) -> Result<(), Error> {
        let turn = self.shared.turn().await?;
        let shared = Arc::clone(&self.shared);
        self.shared
            .run(async move {
                let mut transaction = shared.begin_on_books(&turn).await?;
                migrate::sqlite(&mut transaction).await.map_err(shared::own_error)?;
                transaction.commit().await.map_err(shared::own_error)
            })
            .await?
    }

    /// The SQL of one migration, for hosts that keep their own history, from 1. `None` past the newest.
    #[must_use]
    pub fn schema_sql(version: usize) -> Option<&'static str> {
        sql::MIGRATIONS.get(version.checked_sub(1)?).copied()
    }

    /// Commits an announcement, unless there is a live row.
    async fn announce(
        &self,
        request: &ClaimRequest,
        instead_of: Option<Vec<u8>>,
    ) -> Result<Option<SqliteClaim>, Error> {
        let turn = self.shared.turn().await?;
        // A name of its own for each announcement: a claim is told from an earlier one of the same request.
        let entry = Entry::new(Arc::clone(&self.shared), request.again());
        // On a task, so that whoever asks may leave: what nobody waits for is dropped, and so taken back.
        self.shared.run(async move { entry.announce(&turn, instead_of.as_deref()).await }).await?
    }
}

impl Store for SqliteStore {
    type Claim = SqliteClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<SqliteClaim>, Error> {
        for _ in 0..ASKED_AGAIN {
            let seen = self.shared.look(request.lookup()).await?;
            let instead_of = match judge_row(&self.shared, request, seen)? {
                Break(verdict) => return Ok(verdict),
                Continue(instead_of) => instead_of,
            };
            if let Some(claim) = self.announce(request, instead_of).await? {
                return Ok(Verdict::Claimed(claim));
            }
        }
        Ok(Verdict::InProgress { retry_after: None })
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        Some(Box::new(SqliteUnkeyed::new(Arc::clone(&self.shared))))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
