//! What a store must know of its server before it begins.

use std::collections::HashMap;

use sqlx::{MySql, MySqlPool, Row};

use super::{Flavor, sql};
use crate::db::begin::undisturbed;
use crate::db::fault::in_claim;
use crate::db::sql::SchemaName;
use crate::error::{Error, ErrorKind};

/// What a server is found to be.
pub(crate) struct Inspected {
    pub(crate) flavor: Flavor,
    /// The database of the tables: the one that was named, or that of the pool's sessions.
    pub(crate) schema: SchemaName,
    /// Whether a refused lock undoes the whole transaction, and not just its statement.
    pub(crate) rolls_back_on_timeout: bool,
    /// Whether statements outside a transaction see what is not committed.
    pub(crate) reads_dirty: bool,
}

/// The server behind a pool. Refuses those that are too old, and what leads to a read-only one.
pub(crate) async fn inspect(pool: &MySqlPool, named: Option<String>) -> Result<Inspected, Error> {
    let setup = |what: &str| Error::with_source(ErrorKind::Setup, what);
    let pool = pool.clone();
    let (variables, database) = undisturbed(async move { ask(&pool).await }).await.map_err(in_claim::<MySql>)?;
    let flavor = flavor_of(variables.get("version").map_or("", String::as_str))
        .ok_or_else(|| setup("MariaDB 10.6, MySQL 8.0, or newer is needed"))?;
    let read_only = ["read_only", "innodb_read_only", "tx_read_only", "transaction_read_only"];
    if read_only.iter().any(|name| variables.get(*name).is_some_and(|value| !["OFF", "0"].contains(&value.as_str()))) {
        return Err(setup("the pool leads to a read-only server or session"));
    }
    if variables.get("autocommit").is_some_and(|value| value != "ON") {
        return Err(setup("the pool's sessions must have autocommit on"));
    }
    let schema = named.or(database).ok_or_else(|| setup("the pool's sessions have no database; name one"))?;
    let schema = SchemaName::mysql(&schema).ok_or_else(|| setup("not a name for a database"))?;
    let rolls_back_on_timeout = variables.get("innodb_rollback_on_timeout").is_some_and(|value| value != "OFF");
    // MariaDB before 11.1 has the older name alone, MySQL 8 the newer.
    let levels = ["tx_isolation", "transaction_isolation"];
    let reads_dirty = levels.iter().any(|name| variables.get(*name).is_some_and(|level| level == "READ-UNCOMMITTED"));
    Ok(Inspected { flavor, schema, rolls_back_on_timeout, reads_dirty })
}

async fn ask(pool: &MySqlPool) -> Result<(HashMap<String, String>, Option<String>), sqlx::Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    // Case B48: what has no SKIP LOCKED is refused at start.
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
