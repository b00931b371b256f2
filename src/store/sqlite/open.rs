//! From a path or a pool to a store: connections, and whether the database is what the store relies on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::owner::Owner;
use super::shared::Shared;
use crate::db::sqlite::inspect::inspect;
use crate::error::{Error, ErrorKind};

/// For writes that the host makes outside guarded requests. The store's own waits are its own.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
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
    let found = inspect(&pool).await?;
    let owner = Owner::born(&found.file).map_err(|error| Error::with_source(ErrorKind::Setup, error))?;
    owner.sweep();
    let own = SqliteConnectOptions::clone(&pool.connect_options()).busy_timeout(Duration::ZERO);
    let keep = || SqlitePoolOptions::new().test_before_acquire(false).max_lifetime(None).idle_timeout(None);
    // A lost announcement costs nothing: the power that lost it has ended its owner. A stored answer must last.
    let desk = keep().max_connections(DESK).connect_lazy_with(own.clone().synchronous(SqliteSynchronous::Normal));
    let books = keep().max_connections(1).connect_lazy_with(own);
    Ok(Arc::new(Shared::new(pool, desk, books, found.busy_timeout, owner)))
}
