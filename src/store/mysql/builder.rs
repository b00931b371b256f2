//! The settings of a MySQL store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::MySqlPool;

use super::{MySqlStore, Shared};
use crate::db::mysql::inspect::{Inspected, inspect};
use crate::db::mysql::statements::Statements;
use crate::db::mysql::{Flavor, sql};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::store::Isolation;

/// Builds a [`MySqlStore`].
#[must_use]
pub struct MySqlStoreBuilder {
    pool: MySqlPool,
    schema: Option<String>,
    isolation: Isolation,
    settle_timeout: Duration,
    named_locks: bool,
}

impl MySqlStoreBuilder {
    pub(super) fn new(pool: MySqlPool) -> Self {
        Self {
            pool,
            schema: None,
            isolation: Isolation::default(),
            settle_timeout: Duration::from_secs(10),
            named_locks: false,
        }
    }

    /// The database of the tables. Without it that of the pool's sessions counts, once, when the store is built.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The isolation level of the transaction that handlers get, whatever the default of the pool or the server is.
    ///
    /// Above READ COMMITTED the server locks the gap beside an expired record that is taken over, until the transaction
    /// ends. Meanwhile a new key that belongs into this gap is told 409 on MariaDB and waits on MySQL. A purge that runs
    /// often keeps such records rare.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// How long the end of a transaction may take (10 s): a server that has stopped answering must not hold up clients
    /// and shutdown. A COMMIT that takes longer counts as lost, and its record is looked for (503 `not-recorded` if it
    /// is not found). The stalled connection takes a place of its pool until the operating system gives it up.
    pub fn settle_timeout(mut self, limit: Duration) -> Self {
        self.settle_timeout = limit;
        self
    }

    /// Claims as on MySQL, also where the server is MariaDB: for tests of that way.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn named_locks(mut self) -> Self {
        self.named_locks = true;
        self
    }

    /// Looks at the server and makes the store.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for a name that no database can have, a server before MariaDB 10.6 or MySQL 8.0, one that is
    /// read-only, or a pool without a database; [`ErrorKind::Unavailable`] if the server cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn build(self) -> Result<MySqlStore, Error> {
        let Inspected { flavor, schema, .. } = inspect(&self.pool, self.schema).await?;
        let flavor = if self.named_locks { Flavor::NamedLock } else { flavor };
        Ok(MySqlStore {
            shared: Arc::new(Shared {
                statements: Statements::new(&schema, flavor),
                pool: self.pool,
                schema,
                flavor,
                begin: match self.isolation {
                    Isolation::ReadCommitted => sql::BEGIN_READ_COMMITTED,
                    Isolation::RepeatableRead => sql::BEGIN_REPEATABLE_READ,
                    Isolation::Serializable => sql::BEGIN_SERIALIZABLE,
                },
                settle_timeout: self.settle_timeout,
            }),
        })
    }
}

impl fmt::Debug for MySqlStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStoreBuilder")
            .field("schema", &self.schema)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
