//! What a store must know of its database file before it begins.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::{SqliteConnection, SqlitePool};
use tokio::time::Instant;

use super::own_error;
use super::sql;
use super::wait::patiently;
use crate::error::{Error, ErrorKind};

/// How long opening waits for processes that open, recover or close the same file.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file, and what the host has set on its connections.
pub(crate) struct Inspected {
    pub(crate) file: PathBuf,
    /// In milliseconds.
    pub(crate) busy_timeout: u32,
}

/// Refuses what stores on a file cannot rely on.
pub(crate) async fn inspect(pool: &SqlitePool) -> Result<Inspected, Error> {
    let setup = |what: &'static str| Error::with_source(ErrorKind::Setup, what);
    let until = Instant::now() + PATIENCE;
    let found = patiently!(until, look(&mut *pool.acquire().await?).await).map_err(own_error)?;
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
    Ok(Inspected { file, busy_timeout: found.busy_timeout })
}

struct Found {
    file: Option<PathBuf>,
    journal_mode: String,
    synchronous: i64,
    locking_mode: String,
    busy_timeout: u32,
    has_clock: bool,
}

async fn look(connection: &mut SqliteConnection) -> Result<Found, sqlx::Error> {
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
