//! The settings of an outbox.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;
use tokio::sync::Notify;

use super::Outbox;
use super::event::TraceContext;
use crate::db::OutboxDialect;
use crate::db::outbox::{Queue, Rows};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::store::BodyCodec;

/// The largest event by default: it fits, with what a broker adds, into the 1 MiB that NATS and Kafka take by default.
const MAX_SIZE: usize = 1_000_000;
/// How long dead letters are kept.
const DEAD_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long an operator's call may take.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) type TraceHook = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

/// Builds an [`Outbox`].
#[must_use]
pub struct OutboxBuilder<DB> {
    schema: Option<String>,
    settings: Settings,
    persistent: bool,
    engine: PhantomData<fn() -> DB>,
}

/// What all clones of an outbox share but the tables.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) max_size: usize,
    pub(super) codec: Option<Arc<dyn BodyCodec>>,
    pub(super) trace: Option<TraceHook>,
    pub(super) dead_retention: Duration,
    pub(super) limit: Duration,
}

impl<DB: OutboxDialect> OutboxBuilder<DB> {
    pub(super) fn new() -> Self {
        let settings =
            Settings { max_size: MAX_SIZE, codec: None, trace: None, dead_retention: DEAD_RETENTION, limit: LIMIT };
        Self { schema: None, settings, persistent: true, engine: PhantomData }
    }

    /// The schema of the tables, or the database of MySQL. Without it, the first one on the search path of the pool's
    /// sessions, or their database; without a pool, whatever each connection's own settings lead to.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The largest event, in bytes of all its parts ([`Event::size`](super::Event::size)): 1,000,000 by default, which brokers
    /// with a limit of 1 MiB take. Larger payloads belong elsewhere, with a reference to them in the event.
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.settings.max_size = bytes;
        self
    }

    /// Keeps payloads in another form: encrypted at rest, or compressed. Publishers get them as they were. Every process
    /// that writes to the outbox or relays must use the same codec. With change data capture it is the stored form that is
    /// published.
    pub fn codec(mut self, codec: impl BodyCodec) -> Self {
        self.settings.codec = Some(Arc::new(codec));
        self
    }

    /// Asked at every enqueue for the trace that is current, where the event has none of its own. A host that traces gives
    /// here what its tracer says.
    pub fn trace_context(mut self, current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        self.settings.trace = Some(Arc::new(current));
        self
    }

    /// How long dead letters are kept at least: 30 days by default. They go with [`Outbox::purge`].
    pub fn dead_retention(mut self, retention: Duration) -> Self {
        self.settings.dead_retention = retention;
        self
    }

    /// How long an operator's call may take, waiting for a connection included: 30 s by default.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.settings.limit = limit;
        self
    }

    /// For an outbox without a pool whose connections lead through a pooler: statements are prepared each time.
    pub fn without_statement_cache(mut self) -> Self {
        self.persistent = false;
        self
    }

    /// An outbox that can do everything. A SQLite pool must be made with
    /// [`SqliteStore::connect_options`](crate::SqliteStore::connect_options).
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for a server or a file that does not fit: Postgres before 13, MariaDB before 10.6, MySQL before
    /// 8.0, a read-only replica, a search path or a pool that leads to no schema, SQLite in memory or without WAL, a schema
    /// where there are none. [`ErrorKind::Unavailable`] if it cannot be reached. Whether the tables are there is not asked.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn build(self, pool: Pool<DB>) -> Result<Outbox<DB>, Error> {
        let queue = DB::Queue::open(pool, self.schema.as_deref()).await?;
        Ok(Outbox::on(queue.rows(), Some(queue), self.settings))
    }

    /// An outbox that only enqueues: everything else is [`ErrorKind::Setup`].
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for what cannot be a schema's name.
    pub fn build_without_pool(self) -> Result<Outbox<DB>, Error> {
        let rows = DB::Rows::named(self.schema.as_deref(), self.persistent)?;
        Ok(Outbox::on(rows, None, self.settings))
    }
}

impl<DB: OutboxDialect> Outbox<DB> {
    fn on(rows: DB::Rows, queue: Option<DB::Queue>, settings: Settings) -> Self {
        Self { shared: Arc::new(super::Shared { rows, queue, settings, poke: Notify::new() }) }
    }
}

impl<DB> fmt::Debug for OutboxBuilder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxBuilder")
            .field("schema", &self.schema)
            .field("max_size", &self.settings.max_size)
            .finish_non_exhaustive()
    }
}
