//! From a path or a pool to a store: connections, and whether the database is what the store relies on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{SqliteConnection, SqlitePool};
use tokio::time::Instant;

use super::owner::Owner;
use super::shared::{Shared, own_error};
use crate::db::sqlite::sql;
use crate::db::sqlite::wait::patiently;
use crate::error::{Error, ErrorKind};

/// For writes that the host makes outside guarded requests. The store's own waits are its own.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long opening waits for processes that open, recover or close the same file.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections of the pool that [`open`] makes: one writes, the others read. Each is a thread.
const CONNECTIONS: u32 = 8;
/// Connections for look-ups and announcements, so that no handler's use of its pool delays a duplicate's answer.
const DESK: u32 = 4;

pub(super) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
}

pub(super) async fn open(path: &Path) -> Result<Arc<Shared>, Error> {
    let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_lazy_with(connect_options(path));
    build(pool).await
}

pub(super) async fn build(pool: SqlitePool) -> Result<Arc<Shared>, Error> {
    let setup = |what: &'static str| Error::with_source(ErrorKind::Setup, what);
    let until = Instant::now() + PATIENCE;
    let found = patiently!(until, inspect(&mut *pool.acquire().await?).await).map_err(own_error)?;
    let file = match found.file {
        Some(file) if !file.as_os_str().is_empty() => file,
        _ => return Err(setup("a database in memory is not shared between connections: use a file or a MemoryStore")),
    };
    if !found.has_clock {
        return Err(setup("SQLite 3.42 or newer is needed"));
    }
    if found.journal_mode != "wal" {
        return Err(setup("journal_mode must be WAL: connect with SqliteStore::connect_options"));
    }
    if found.synchronous < 2 {
        return Err(setup("synchronous must be FULL or EXTRA: connect with SqliteStore::connect_options"));
    }
    if found.locking_mode != "normal" {
        return Err(setup("locking_mode must be NORMAL: connect with SqliteStore::connect_options"));
    }
    let owner = Owner::born(&file).map_err(|error| Error::with_source(ErrorKind::Setup, error))?;
    owner.sweep();
    let own = SqliteConnectOptions::clone(&pool.connect_options()).busy_timeout(Duration::ZERO);
    let keep = || SqlitePoolOptions::new().test_before_acquire(false).max_lifetime(None).idle_timeout(None);
    // A lost announcement costs nothing: the power that lost it has ended its owner. A stored answer must last.
    let desk = keep().max_connections(DESK).connect_lazy_with(own.clone().synchronous(SqliteSynchronous::Normal));
    let books = keep().max_connections(1).connect_lazy_with(own);
    Ok(Arc::new(Shared::new(pool, desk, books, found.busy_timeout, owner)))
}

/// What the store relies on.
struct Found {
    file: Option<PathBuf>,
    journal_mode: String,
    synchronous: i64,
    locking_mode: String,
    busy_timeout: u32,
    has_clock: bool,
}

async fn inspect(connection: &mut SqliteConnection) -> Result<Found, sqlx::Error> {
    let file: Option<String> = sqlx::query_scalar(sql::FILE).fetch_optional(&mut *connection).await?.flatten();
    Ok(Found {
        file: file.map(PathBuf::from),
        journal_mode: sqlx::query_scalar(sql::JOURNAL_MODE).fetch_one(&mut *connection).await?,
        synchronous: sqlx::query_scalar(sql::SYNCHRONOUS).fetch_one(&mut *connection).await?,
        locking_mode: sqlx::query_scalar(sql::LOCKING_MODE).fetch_one(&mut *connection).await?,
        busy_timeout: sqlx::query_scalar(sql::BUSY_TIMEOUT).fetch_one(&mut *connection).await?,
        has_clock: sqlx::query_scalar(sql::HAS_CLOCK).fetch_one(connection).await?,
    })
}
