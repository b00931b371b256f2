//! What the service asks of a database: orders, and how many each customer has placed.

use idempotency::OutboxDialect;
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::order::Order;

/// An engine of the service.
pub trait Database: OutboxDialect {
    /// Creates the service's own tables. Any number of processes may do it at once.
    fn create_tables(pool: &Pool<Self>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Counts an order of a customer's, from 1, without gaps. Until the transaction ends no other order of this customer is
    /// counted: so events that are enqueued after it stand in the order of these numbers.
    fn count(
        connection: &mut Self::Connection,
        customer: &str,
    ) -> impl Future<Output = Result<i64, sqlx::Error>> + Send;

    /// Writes an order.
    fn insert(
        connection: &mut Self::Connection,
        id: &str,
        order: &Order,
        n: i64,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

macro_rules! database {
    ($engine:ty, [$($create:expr),*], $count:expr, $counted:expr, $insert:expr) => {
        impl Database for $engine {
            async fn create_tables(pool: &Pool<Self>) -> Result<(), sqlx::Error> {
                let mut transaction = pool.begin().await?;
                $(sqlx::raw_sql($create).execute(&mut *transaction).await?;)*
                transaction.commit().await
            }

            async fn count(connection: &mut Self::Connection, customer: &str) -> Result<i64, sqlx::Error> {
                sqlx::query($count).bind(customer).execute(&mut *connection).await?;
                sqlx::query_scalar($counted).bind(customer).fetch_one(connection).await
            }

            async fn insert(
                connection: &mut Self::Connection,
                id: &str,
                order: &Order,
                n: i64,
            ) -> Result<(), sqlx::Error> {
                let insert = sqlx::query($insert).bind(id).bind(&order.customer).bind(&order.sku);
                insert.bind(order.quantity).bind(n).execute(connection).await?;
                Ok(())
            }
        }
    };
}

database!(
    Postgres,
    [
        // `IF NOT EXISTS` alone fails when two processes run it at once.
        "SELECT pg_advisory_xact_lock(7306925418260199)",
        r#"CREATE TABLE IF NOT EXISTS customers (customer text COLLATE "C" NOT NULL PRIMARY KEY, orders bigint NOT NULL)"#,
        r#"CREATE TABLE IF NOT EXISTS orders (id text NOT NULL PRIMARY KEY, customer text COLLATE "C" NOT NULL,
            sku text NOT NULL, quantity bigint NOT NULL, n bigint NOT NULL, UNIQUE (customer, n))"#
    ],
    "INSERT INTO customers (customer, orders) VALUES ($1, 1)
        ON CONFLICT (customer) DO UPDATE SET orders = customers.orders + 1",
    "SELECT orders FROM customers WHERE customer = $1",
    "INSERT INTO orders (id, customer, sku, quantity, n) VALUES ($1, $2, $3, $4, $5)"
);
database!(
    Sqlite,
    [
        "CREATE TABLE IF NOT EXISTS customers (customer text NOT NULL PRIMARY KEY, orders bigint NOT NULL)",
        "CREATE TABLE IF NOT EXISTS orders (id text NOT NULL PRIMARY KEY, customer text NOT NULL, sku text NOT NULL,
            quantity bigint NOT NULL, n bigint NOT NULL, UNIQUE (customer, n))"
    ],
    "INSERT INTO customers (customer, orders) VALUES ($1, 1)
        ON CONFLICT (customer) DO UPDATE SET orders = customers.orders + 1",
    "SELECT orders FROM customers WHERE customer = $1",
    "INSERT INTO orders (id, customer, sku, quantity, n) VALUES ($1, $2, $3, $4, $5)"
);
database!(
    MySql,
    [
        // Binary, because text is compared with spaces at its end left out.
        "CREATE TABLE IF NOT EXISTS customers (customer varbinary(512) NOT NULL PRIMARY KEY, orders bigint NOT NULL)
            ENGINE = InnoDB",
        "CREATE TABLE IF NOT EXISTS orders (id varchar(64) NOT NULL PRIMARY KEY, customer varbinary(512) NOT NULL,
            sku varchar(512) NOT NULL, quantity bigint NOT NULL, n bigint NOT NULL, UNIQUE KEY (customer, n))
            ENGINE = InnoDB CHARACTER SET utf8mb4"
    ],
    "INSERT INTO customers (customer, orders) VALUES (?, 1) ON DUPLICATE KEY UPDATE orders = orders + 1",
    "SELECT orders FROM customers WHERE customer = ?",
    "INSERT INTO orders (id, customer, sku, quantity, n) VALUES (?, ?, ?, ?, ?)"
);
