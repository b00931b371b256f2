//! The settings of a Postgres store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;

use super::{Completed, PostgresStore, Shared};
use crate::db::postgres::inspect::{Inspected, inspect};
use crate::db::postgres::sql;
use crate::db::postgres::statements::{Bounds, Statements};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::store::Isolation;

/// Builds a [`PostgresStore`].
#[must_use]
pub struct PostgresStoreBuilder {
    pool: PgPool,
    schema: Option<String>,
    isolation: Isolation,
    idle_timeout: Option<Duration>,
    keepalive: (Duration, Duration),
    settle_timeout: Duration,
}

impl PostgresStoreBuilder {
    pub(super) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            schema: None,
            isolation: Isolation::default(),
            idle_timeout: Some(Duration::from_secs(300)),
            keepalive: (Duration::from_secs(30), Duration::from_secs(10)),
            settle_timeout: Duration::from_secs(10),
        }
    }

    /// The schema of the tables. Without it the search path decides, once, when the store is built.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The isolation level of the transaction that handlers get.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// After how long without a statement the server ends a claim's transaction (5 minutes); the bound on a key whose
    /// handler hangs. `None`: never.
    pub fn idle_timeout(mut self, idle_timeout: Option<Duration>) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// TCP keepalive of the server towards this client during a claim, in whole seconds (30 s idle, then every 10 s):
    /// the bound on a key whose host died without a word.
    pub fn keepalive(mut self, idle: Duration, interval: Duration) -> Self {
        self.keepalive = (idle, interval);
        self
    }

    /// How long each step of a settlement may take (10 s), and of the end of a request without a key: a server that has
    /// stopped answering must not hold up clients and shutdown. A COMMIT that takes longer counts as lost, and its record
    /// is looked for (503 `not-recorded` if it is not found, or there is none); before the COMMIT nothing was kept (503
    /// `store-unavailable`). The stalled connection takes a place of its pool until the operating system gives it up.
    pub fn settle_timeout(mut self, limit: Duration) -> Self {
        self.settle_timeout = limit;
        self
    }

    /// Looks at the server and makes the store.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for a schema name that cannot be one, a server before 13, a read-only replica, or a search
    /// path that leads nowhere; [`ErrorKind::Unavailable`] if the server cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn build(self) -> Result<PostgresStore, Error> {
        let Inspected { schema, reads_committed, persistent } =
            inspect(&self.pool, self.schema.as_deref(), "idempotency_keys").await?;
        let strict = self.isolation != Isolation::ReadCommitted;
        let (begin, begin_unkeyed) = match self.isolation {
            Isolation::ReadCommitted => (sql::BEGIN, sql::BEGIN_MARKED),
            Isolation::RepeatableRead => (sql::BEGIN_REPEATABLE_READ, sql::BEGIN_MARKED_REPEATABLE_READ),
            Isolation::Serializable => (sql::BEGIN_SERIALIZABLE, sql::BEGIN_MARKED_SERIALIZABLE),
        };
        Ok(PostgresStore {
            shared: Arc::new(Shared {
                statements: Statements::new(&schema, strict, persistent),
                pool: self.pool,
                schema,
                begin,
                begin_unkeyed,
                strict,
                bounds: Bounds {
                    idle: self.idle_timeout,
                    keepalive_idle: self.keepalive.0,
                    keepalive_interval: self.keepalive.1,
                },
                settle_timeout: self.settle_timeout,
                // Without a statement cache a statement is two messages, which a pooler may send to two servers; and a
                // row read under SERIALIZABLE costs a predicate lock.
                peeks: persistent && reads_committed,
                completed: Completed::default(),
            }),
        })
    }
}

impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("schema", &self.schema)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
