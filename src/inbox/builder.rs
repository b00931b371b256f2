//! The settings of an inbox.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;

use super::{Inbox, InboxDialect, Part, Shared};
use crate::db::inbox::{Rows, Settings};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, Kind, Of};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::store::Isolation;

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Builds an [`Inbox`].
#[must_use]
pub struct InboxBuilder<DB: InboxDialect> {
    pool: Pool<DB>,
    consumer: Vec<u8>,
    settings: Settings,
    retention: Duration,
    redelivery_horizon: Option<Duration>,
    wait: Duration,
    retry_after: Duration,
    poison_after: Option<NonZeroU32>,
}

impl<DB: InboxDialect> InboxBuilder<DB> {
    pub(super) fn new(pool: Pool<DB>, consumer: &[u8]) -> Self {
        let idle = Some(Duration::from_secs(60));
        Self {
            pool,
            consumer: consumer.to_vec(),
            settings: Settings { schema: None, isolation: None, idle, like_mysql: false },
            retention: WEEK,
            redelivery_horizon: None,
            wait: Duration::ZERO,
            retry_after: Duration::from_millis(250),
            poison_after: None,
        }
    }

    /// How long a mark is kept at least, from the time when its message was processed (7 days). It must be longer than
    /// anybody may deliver the message again: the broker, its dead letters, a person who replays a topic. What is older is
    /// still a `Duplicate` until it is purged; what is purged runs again.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// For how long the broker may deliver a message again, if you know. Where that is longer than the retention, building
    /// warns by the event `redelivery_beyond_retention` (case B27).
    pub fn redelivery_horizon(mut self, horizon: Duration) -> Self {
        self.redelivery_horizon = Some(horizon);
        self
    }

    /// How long [`Inbox::process`] waits for a message that is busy before it says so (not at all). It asks again from time
    /// to time, and holds no connection and no transaction in between.
    pub fn wait_up_to(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// What `Busy` advises (250 ms).
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Gives a message up as `Poison` that has failed so often (never). The broker's own count decides where
    /// [`Message::with_deliveries`](super::Message::with_deliveries) tells it: a later delivery than this one is poison.
    /// Otherwise [`Inbox::process`] counts a failure whenever its handler fails or panics or its transaction cannot commit,
    /// on the same connection after the rollback. A delivery that kills its process is counted by brokers only.
    pub fn poison_after(mut self, failures: NonZeroU32) -> Self {
        self.poison_after = Some(failures);
        self
    }

    /// After how long without a statement the server ends the transaction of a message (60 s), so that a process that has
    /// stopped does not keep its message busy. `None`: never. It travels with another statement. For
    /// [`Inbox::accept`] it counts on Postgres alone, where the transaction has none yet. SQLite has no such bound: there a
    /// transaction is in this process or it is gone.
    pub fn transaction_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.idle = timeout;
        self
    }

    /// Looks at the database and makes the inbox. Call [`Inbox::migrate`] next.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for an empty name of the consumer, and where the database is not what the inbox relies on: see
    /// the store of the same engine; on MySQL also for another isolation level than READ COMMITTED, and where
    /// `innodb_rollback_on_timeout` is on. [`ErrorKind::Unavailable`] if it cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn build(self) -> Result<Inbox<DB>, Error> {
        let Some(consumer) = Part::new(&self.consumer) else {
            return Err(Error::with_source(ErrorKind::Setup, "an inbox needs the name of its consumer"));
        };
        let name: Arc<str> = String::from_utf8_lossy(&self.consumer).into();
        if self.redelivery_horizon.is_some_and(|horizon| horizon > self.retention) {
            Of::Named(Kind::Consumer, &name).emit(Event::RedeliveryBeyondRetention);
        }
        let Self { pool, settings, retention, wait, retry_after, poison_after, .. } = self;
        let rows = DB::Inbox::open(pool, settings).await?;
        let running = Arc::default();
        Ok(Inbox {
            shared: Arc::new(Shared { rows, consumer, name, retention, wait, retry_after, poison_after, running }),
        })
    }
}

#[cfg(feature = "postgres")]
impl InboxBuilder<sqlx::Postgres> {
    /// The schema of the tables. Without it the search path decides, once, when the inbox is built.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.settings.schema = Some(schema.into());
        self
    }

    /// The isolation level of the transactions that [`Inbox::process`] begins (READ COMMITTED).
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.settings.isolation = Some(isolation);
        self
    }
}

#[cfg(feature = "mysql")]
impl InboxBuilder<sqlx::MySql> {
    /// The database of the tables. Without it that of the pool's sessions counts, once, when the inbox is built.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.settings.schema = Some(schema.into());
        self
    }

    /// The isolation level of the transactions that [`Inbox::process`] begins (READ COMMITTED). Others are for MariaDB
    /// alone.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.settings.isolation = Some(isolation);
        self
    }

    /// Works as on MySQL, also where the server is MariaDB: for tests of that way.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn like_mysql(mut self) -> Self {
        self.settings.like_mysql = true;
        self
    }
}

impl<DB: InboxDialect> fmt::Debug for InboxBuilder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxBuilder")
            .field("settings", &self.settings)
            .field("retention", &self.retention)
            .field("wait", &self.wait)
            .field("poison_after", &self.poison_after)
            .finish_non_exhaustive()
    }
}
