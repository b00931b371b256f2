//! Keys as leases in the database of the payments, for `KEYS=lease`.

use std::error::Error;
use std::time::Duration;

use idempotency::store::{AnyStore, OnUnknown};
use idempotency::{Attempt, LeaseDialect, LeaseStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySql, Pool, Postgres, Sqlite, Transaction};

use crate::database::Database;

/// Connections for leases.
const CONNECTIONS: u32 = 4;

type Failure = Box<dyn Error + Send + Sync>;

/// An engine of the service, and what it offers to leases.
pub trait Leases: Database {
    /// A store in this database, whose tables are there then.
    fn leases(pool: &Pool<Self>, lease: Duration) -> impl Future<Output = Result<AnyStore, Failure>> + Send;

    /// Lets the transaction commit only while the attempt owns its key in this database.
    fn guard(
        attempt: &Attempt,
        transaction: &mut Transaction<'_, Self>,
    ) -> impl Future<Output = Result<(), idempotency::Error>> + Send;
}

impl Leases for Postgres {
    async fn leases(pool: &Pool<Self>, lease: Duration) -> Result<AnyStore, Failure> {
        // Connections of its own: a renewal must not wait for handlers.
        let options = pool.connect_options().as_ref().clone();
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
        opened(LeaseStore::new(pool).await?, lease).await
    }

    async fn guard(attempt: &Attempt, transaction: &mut Transaction<'_, Self>) -> Result<(), idempotency::Error> {
        attempt.guard(transaction).await
    }
}

impl Leases for Sqlite {
    async fn leases(pool: &Pool<Self>, lease: Duration) -> Result<AnyStore, Failure> {
        opened(LeaseStore::new(pool.clone()).await?, lease).await
    }

    async fn guard(attempt: &Attempt, transaction: &mut Transaction<'_, Self>) -> Result<(), idempotency::Error> {
        attempt.guard(transaction).await
    }
}

impl Leases for MySql {
    async fn leases(pool: &Pool<Self>, lease: Duration) -> Result<AnyStore, Failure> {
        // As on Postgres.
        let options = pool.connect_options().as_ref().clone();
        let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
        opened(LeaseStore::new(pool).await?, lease).await
    }

    async fn guard(attempt: &Attempt, transaction: &mut Transaction<'_, Self>) -> Result<(), idempotency::Error> {
        attempt.guard(transaction).await
    }
}

/// Whatever the last attempt did is safe to repeat: a payment has the same id in all attempts.
async fn opened<DB: LeaseDialect>(store: LeaseStore<DB>, lease: Duration) -> Result<AnyStore, Failure> {
    let store = store.lease(lease)?.on_unknown(OnUnknown::Rerun);
    store.migrate().await?;
    Ok(AnyStore::operable(store))
}
