//! What the service asks of a database: balances, one row a payment.

use std::collections::BTreeMap;

use idempotency::inbox::InboxDialect;
use sqlx::{MySql, Pool, Postgres, Sqlite};

/// An engine of the service.
pub trait Database: InboxDialect {
    /// Creates the service's own table. Any number of processes may do it at once.
    fn create_table(pool: &Pool<Self>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Adds to a payment's balance in the caller's transaction.
    ///
    /// Run twice it would add twice: that it runs once for each message is what the inbox is for.
    fn add(
        connection: &mut Self::Connection,
        payment: &str,
        amount: i64,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Every payment with a row, and its balance.
    fn balances(pool: &Pool<Self>) -> impl Future<Output = Result<BTreeMap<String, i64>, sqlx::Error>> + Send;
}

macro_rules! database {
    ($engine:ty, [$($create:expr),*], $add:expr, $balances:expr) => {
        impl Database for $engine {
            async fn create_table(pool: &Pool<Self>) -> Result<(), sqlx::Error> {
                let mut transaction = pool.begin().await?;
                $(sqlx::raw_sql($create).execute(&mut *transaction).await?;)*
                transaction.commit().await
            }

            async fn add(connection: &mut Self::Connection, payment: &str, amount: i64) -> Result<(), sqlx::Error> {
                sqlx::query($add).bind(payment).bind(amount).execute(connection).await?;
                Ok(())
            }

            async fn balances(pool: &Pool<Self>) -> Result<BTreeMap<String, i64>, sqlx::Error> {
                let rows: Vec<(String, i64)> = sqlx::query_as($balances).fetch_all(pool).await?;
                Ok(rows.into_iter().collect())
            }
        }
    };
}

database!(
    Postgres,
    [
        // `IF NOT EXISTS` alone fails when two processes run it at once.
        "SELECT pg_advisory_xact_lock(7306925418260198)",
        r#"CREATE TABLE IF NOT EXISTS balances (payment text COLLATE "C" NOT NULL PRIMARY KEY, balance bigint NOT NULL)"#
    ],
    "INSERT INTO balances (payment, balance) VALUES ($1, $2)
        ON CONFLICT (payment) DO UPDATE SET balance = balances.balance + excluded.balance",
    "SELECT payment, balance FROM balances"
);
database!(
    Sqlite,
    ["CREATE TABLE IF NOT EXISTS balances (payment text NOT NULL PRIMARY KEY, balance bigint NOT NULL)"],
    "INSERT INTO balances (payment, balance) VALUES ($1, $2)
        ON CONFLICT (payment) DO UPDATE SET balance = balances.balance + excluded.balance",
    "SELECT payment, balance FROM balances"
);
database!(
    MySql,
    // Binary, because text is compared with spaces at its end left out.
    ["CREATE TABLE IF NOT EXISTS balances (payment varbinary(512) NOT NULL PRIMARY KEY, balance bigint NOT NULL)
        ENGINE = InnoDB"],
    "INSERT INTO balances (payment, balance) VALUES (?, ?) ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance)",
    "SELECT CONVERT(payment USING utf8mb4), balance FROM balances"
);
