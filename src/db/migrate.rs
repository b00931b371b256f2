//! Brings the tables to the newest version, with a history of its own (S30).
//!
//! sqlx's migrator is not used: its default history table is shared with the host's (VersionMissing), and it takes a
//! session lock that it does not free on errors, which a pooler hands to somebody else.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::sql::SchemaName;
use crate::events::{Event, emit};

#[cfg(feature = "mysql")]
pub(crate) use mysql::migrate as mysql;
#[cfg(feature = "postgres")]
pub(crate) use postgres::migrate as postgres;
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::apply as sqlite;

/// The SQL of one migration, from 1. `name` makes a name of the engine.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn schema_sql(
    migrations: &[&'static str],
    version: usize,
    schema: Option<&str>,
    name: fn(&str) -> Option<SchemaName>,
) -> Option<String> {
    let text = migrations.get(version.checked_sub(1)?)?;
    let schema = match schema {
        Some(text) => Some(name(text)?),
        None => None,
    };
    Some(super::sql::expand(text, schema.as_ref()).as_str().to_owned())
}

/// O01: nothing here deletes expired rows unless a host has a purger, and whoever has none is told. A question that cannot be
/// answered stops nobody.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
fn warn_if(unpurged: Result<bool, sqlx::Error>) {
    if unpurged.unwrap_or(false) {
        emit(Event::Unpurged);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use sha2::{Digest, Sha256};
    use sqlx::{PgPool, Postgres};

    use super::warn_if;
    use crate::db::begin::begin;
    use crate::db::fault::{Fault, fault};
    use crate::db::postgres::sql;
    use crate::db::sql::{SchemaName, expand};
    use crate::error::{Error, ErrorKind};

    pub(crate) async fn migrate(pool: &PgPool, schema: &SchemaName) -> Result<(), Error> {
        apply(pool, schema).await.map_err(|error| {
            let kind = match fault::<Postgres>(&error) {
                Fault::Lost => ErrorKind::Unavailable,
                Fault::Conflict => ErrorKind::Conflict,
                _ => ErrorKind::Setup,
            };
            Error::with_source(kind, error)
        })
    }

    async fn apply(pool: &PgPool, schema: &SchemaName) -> Result<(), sqlx::Error> {
        let lock = lock_of(schema);
        create_history(pool, schema, lock).await?;
        for (version, migration) in (1_i32..).zip(sql::MIGRATIONS) {
            let mut transaction = begin(pool, sql::BEGIN).await?;
            sqlx::query(sql::LOCK_MIGRATIONS).bind(lock).persistent(false).execute(&mut *transaction).await?;
            let applied: i64 = sqlx::query_scalar(expand(sql::APPLIED, Some(schema)))
                .bind(version)
                .persistent(false)
                .fetch_one(&mut *transaction)
                .await?;
            if applied == 0 {
                sqlx::raw_sql(expand(migration, Some(schema))).execute(&mut *transaction).await?;
                sqlx::query(expand(sql::RECORD_MIGRATION, Some(schema)))
                    .bind(version)
                    .persistent(false)
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
        }
        let unpurged = sqlx::query_scalar(expand(sql::UNPURGED, Some(schema))).persistent(false).fetch_one(pool).await;
        warn_if(unpurged);
        Ok(())
    }

    /// Schema and history, under the lock: `CREATE … IF NOT EXISTS` alone fails when two processes run it at once.
    async fn create_history(pool: &PgPool, schema: &SchemaName, lock: i64) -> Result<(), sqlx::Error> {
        let mut transaction = begin(pool, sql::BEGIN).await?;
        sqlx::query(sql::LOCK_MIGRATIONS).bind(lock).persistent(false).execute(&mut *transaction).await?;
        // Asked first: creating a schema needs a privilege that a role need not have where it exists already.
        let exists: bool = sqlx::query_scalar(sql::SCHEMA_EXISTS)
            .bind(schema.as_str())
            .persistent(false)
            .fetch_one(&mut *transaction)
            .await?;
        if !exists {
            sqlx::raw_sql(expand(sql::CREATE_SCHEMA, Some(schema))).execute(&mut *transaction).await?;
        }
        sqlx::raw_sql(expand(sql::HISTORY, Some(schema))).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    fn lock_of(schema: &SchemaName) -> i64 {
        let digest: [u8; 32] =
            Sha256::new().chain_update(b"idempotency/migrations/1\0").chain_update(schema.as_str()).finalize().into();
        let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = digest;
        i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use sqlx::SqliteConnection;

    use super::warn_if;
    use crate::db::sqlite::sql;

    /// What is missing, inside the caller's transaction, which holds the write lock: of several processes that migrate
    /// at once the second finds everything done.
    pub(crate) async fn apply(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql::HISTORY).execute(&mut *connection).await?;
        for (version, migration) in (1_i64..).zip(sql::MIGRATIONS) {
            let applied: i64 =
                sqlx::query_scalar(sql::APPLIED).bind(version).persistent(false).fetch_one(&mut *connection).await?;
            if applied == 0 {
                sqlx::raw_sql(*migration).execute(&mut *connection).await?;
                sqlx::query(sql::RECORD_MIGRATION).bind(version).persistent(false).execute(&mut *connection).await?;
            }
        }
        warn_if(sqlx::query_scalar(sql::UNPURGED).persistent(false).fetch_one(&mut *connection).await);
        Ok(())
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use sqlx::{MySql, MySqlConnection, MySqlPool};

    use super::warn_if;
    use crate::db::begin::undisturbed;
    use crate::db::fault::{Fault, fault};
    use crate::db::mysql::sql;
    use crate::db::sql::{Hex, SchemaName, expand};
    use crate::error::{Error, ErrorKind};

    /// How long to wait for another process that migrates.
    const PATIENCE: i64 = 60;

    pub(crate) async fn migrate(pool: &MySqlPool, schema: &SchemaName) -> Result<(), Error> {
        let (pool, schema) = (pool.clone(), schema.clone());
        undisturbed(async move {
            let mut connection = pool.acquire().await?;
            // Every definition commits by itself, so there is no transaction to carry a lock. The session carries it, and
            // ends with it, whatever happens.
            connection.close_on_drop();
            apply(&mut connection, &schema).await
        })
        .await
        .map_err(|error| {
            let kind = match fault::<MySql>(&error) {
                Fault::Lost | Fault::Busy => ErrorKind::Unavailable,
                Fault::Conflict => ErrorKind::Conflict,
                _ => ErrorKind::Setup,
            };
            Error::with_source(kind, error)
        })
    }

    async fn apply(connection: &mut MySqlConnection, schema: &SchemaName) -> Result<(), sqlx::Error> {
        let lock = lock_of(schema);
        let got: Option<i64> =
            sqlx::query_scalar(sql::LOCK_MIGRATIONS).bind(lock).bind(PATIENCE).fetch_one(&mut *connection).await?;
        if got != Some(1) {
            // Another process has not finished in time.
            return Err(sqlx::Error::PoolTimedOut);
        }
        // Asked first: creating a database needs a privilege that an account need not have where it exists already.
        let exists: i64 =
            sqlx::query_scalar(sql::SCHEMA_EXISTS).bind(schema.as_str()).fetch_one(&mut *connection).await?;
        if exists == 0 {
            sqlx::raw_sql(expand(sql::CREATE_SCHEMA, Some(schema))).execute(&mut *connection).await?;
        }
        sqlx::raw_sql(expand(sql::HISTORY, Some(schema))).execute(&mut *connection).await?;
        for (version, migration) in (1_i32..).zip(sql::MIGRATIONS) {
            let applied: i64 = sqlx::query_scalar(expand(sql::APPLIED, Some(schema)))
                .bind(version)
                .fetch_one(&mut *connection)
                .await?;
            if applied == 0 {
                // Cut between the two, the migration runs again: each is written so that it may.
                sqlx::raw_sql(expand(migration, Some(schema))).execute(&mut *connection).await?;
                sqlx::query(expand(sql::RECORD_MIGRATION, Some(schema)))
                    .bind(version)
                    .execute(&mut *connection)
                    .await?;
            }
        }
        let unpurged = sqlx::query_scalar(expand(sql::UNPURGED, Some(schema))).fetch_one(&mut *connection).await;
        warn_if(unpurged.map(|found: i64| found != 0));
        Ok(())
    }

    fn lock_of(schema: &SchemaName) -> String {
        use sha2::{Digest, Sha256};
        let digest: [u8; 32] = Sha256::new()
            .chain_update(b"idempotency/mysql-migrations/1\0")
            .chain_update(schema.as_str())
            .finalize()
            .into();
        format!("idem-m:{}", Hex::new(&digest[..24]).as_str())
    }
}
