//! What all clones of a store share: its connections, its queue, its name and the claims that it knows of.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool, Transaction};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::owner::Owner;
use super::turn::{Queue, Turn};
use crate::db::begin::begin_in_turn;
pub(super) use crate::db::sqlite::own_error;
use crate::db::sqlite::statements::{self, Seen};
use crate::db::sqlite::wait::{acquire, patiently};
use crate::error::{Error, ErrorKind};
use crate::lookup::LookupKey;
use crate::store::Token;

/// How long a look-up waits for other processes: only where one recovers or closes the file.
pub(super) const LOOK_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Shared {
    /// The host's: handlers' transactions.
    pub(super) pool: SqlitePool,
    /// At `synchronous=NORMAL`.
    desk: SqlitePool,
    /// As durable as the host's.
    books: SqlitePool,
    /// The busy timeout of the host's connections, in milliseconds.
    pub(super) own_wait: u32,
    queue: Queue,
    pub(super) owner: Owner,
    /// The claims of this store that have not ended. An announcement of ours that is not among them is nobody's.
    known: Mutex<HashSet<[u8; 16]>>,
    runtime: Handle,
}

impl Shared {
    /// Called in a runtime.
    pub(super) fn new(pool: SqlitePool, desk: SqlitePool, books: SqlitePool, own_wait: u32, owner: Owner) -> Self {
        let (queue, runtime) = (Queue::new(), Handle::current());
        Self { pool, desk, books, own_wait, queue, owner, known: Mutex::default(), runtime }
    }

    pub(super) async fn close(&self) {
        self.desk.close().await;
        self.books.close().await;
        self.pool.close().await;
    }

    pub(super) async fn turn(&self) -> Result<Turn, Error> {
        self.queue.turn().await
    }

    /// Does `work` to its end, whether or not anybody waits for it.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        // It fails when the runtime shuts down.
        self.spawn(work).await.map_err(|error| Error::with_source(ErrorKind::Unavailable, error))
    }

    pub(super) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let runtime = Handle::try_current().unwrap_or_else(|_| self.runtime.clone());
        // Entered, because connections that are dropped with the work go back to their pool by way of a runtime.
        let _entered = runtime.enter();
        runtime.spawn(work)
    }

    pub(super) async fn look(&self, lookup: &LookupKey) -> Result<Option<Seen>, Error> {
        let until = Instant::now() + LOOK_PATIENCE;
        patiently!(until, statements::look(&mut *self.desk(until).await?, lookup).await).map_err(own_error)
    }

    /// For look-ups, announcements and what takes them back.
    pub(super) async fn desk(&self, until: Instant) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        acquire(&self.desk, until).await
    }

    /// For records that are finished outside a handler's transaction.
    pub(super) async fn books(&self, until: Instant) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        acquire(&self.books, until).await
    }

    pub(super) async fn begin_on_books(&self, turn: &Turn) -> Result<Transaction<'static, Sqlite>, Error> {
        let connection = acquire(&self.books, turn.until()).await.map_err(own_error)?;
        begin_in_turn(connection, 0, turn.until()).await.map_err(own_error)
    }

    pub(super) fn know(&self, token: Token) {
        self.known().insert(*token.as_bytes());
    }

    pub(super) fn forget(&self, token: Token) {
        self.known().remove(token.as_bytes());
    }

    pub(super) fn knows(&self, token: &[u8]) -> bool {
        self.known().contains(token)
    }

    fn known(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        // Nothing panics under the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
