//! The settings of a MySQL store.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{MySql, MySqlPool, Row};

use super::{MySqlStore, Shared};
use crate::db::begin::undisturbed;
use crate::db::fault::in_claim;
use crate::db::mysql::statements::Statements;
use crate::db::mysql::{Flavor, sql};
use crate::db::sql::SchemaName;
use crate::error::{Error, ErrorKind};
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
    pub async fn build(self) -> Result<MySqlStore, Error> {
        let pool = self.pool.clone();
        let (variables, database) =
            undisturbed(async move { inspect(&pool).await }).await.map_err(in_claim::<MySql>)?;
        let flavor = flavor_of(variables.get("version").map_or("", String::as_str))
            .ok_or_else(|| Error::with_source(ErrorKind::Setup, "MariaDB 10.6, MySQL 8.0, or newer is needed"))?;
        let read_only = ["read_only", "innodb_read_only", "tx_read_only", "transaction_read_only"];
        if read_only
            .iter()
            .any(|name| variables.get(*name).is_some_and(|value| !["OFF", "0"].contains(&value.as_str())))
        {
            return Err(Error::with_source(ErrorKind::Setup, "the pool leads to a read-only server or session"));
        }
        if variables.get("autocommit").is_some_and(|value| value != "ON") {
            return Err(Error::with_source(ErrorKind::Setup, "the pool's sessions must have autocommit on"));
        }
        let schema = self
            .schema
            .or(database)
            .ok_or_else(|| Error::with_source(ErrorKind::Setup, "the pool's sessions have no database; name one"))?;
        let schema = SchemaName::mysql(&schema)
            .ok_or_else(|| Error::with_source(ErrorKind::Setup, "not a name for a database"))?;
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

async fn inspect(pool: &MySqlPool) -> Result<(HashMap<String, String>, Option<String>), sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let rows = sqlx::raw_sql(sql::INSPECT).fetch_all(&mut *connection).await?;
    let mut variables = HashMap::new();
    for row in rows {
        variables.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let database = sqlx::raw_sql(sql::DATABASE).fetch_one(&mut *connection).await?.try_get(0)?;
    Ok((variables, database))
}

/// How a server of this version is claimed on; `None` where it is too old, or not InnoDB.
fn flavor_of(version: &str) -> Option<Flavor> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let release = (numbers.next()?, numbers.next()?);
    let is_named = |name: &str| version.to_ascii_lowercase().contains(name);
    if is_named("mariadb") {
        (release >= (10, 6)).then_some(Flavor::NoWait)
    } else if is_named("tidb") {
        None
    } else {
        (release >= (8, 0)).then_some(Flavor::NamedLock)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_decides_how_to_claim() {
        for (version, flavor) in [
            ("10.11.19-MariaDB-0+deb12u1", Some(Flavor::NoWait)),
            ("11.8.2-MariaDB-log", Some(Flavor::NoWait)),
            ("10.5.29-MariaDB", None),
            ("8.0.36", Some(Flavor::NamedLock)),
            ("8.4.0-commercial", Some(Flavor::NamedLock)),
            ("9.1.0", Some(Flavor::NamedLock)),
            ("5.7.44-log", None),
            ("8.0.11-TiDB-v7.5.0", None),
            ("", None),
        ] {
            assert_eq!(flavor_of(version), flavor, "{version}");
        }
    }
}
