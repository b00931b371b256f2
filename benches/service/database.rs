//! A schema of its own on the server, removed at the end.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::Failure;
use crate::orders::KEYS;

pub(crate) struct Database {
    pub(crate) options: PgConnectOptions,
    server: PgConnectOptions,
    schema: String,
}

impl Database {
    pub(crate) async fn new() -> Result<Self, Failure> {
        let url = std::env::var("POSTGRES_URL")
            .map_err(|_| "POSTGRES_URL is not set: tests/run --with cargo bench --bench service")?;
        let server: PgConnectOptions = url.parse()?;
        let schema = format!("bench_{}", std::process::id());
        let options = server.clone().options([("search_path", schema.as_str())]);
        let database = Self { options, server, schema };
        let pool = database.pool(1).await?;
        let text = format!(
            "CREATE SCHEMA {};
             CREATE TABLE customers (id bigint PRIMARY KEY, credit bigint NOT NULL);
             INSERT INTO customers SELECT id, 1000000 FROM generate_series(0, 999) AS id;
             CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer bigint, amount bigint);
             CREATE TABLE answers (id bigint PRIMARY KEY, answer bytea NOT NULL);
             INSERT INTO answers SELECT id, convert_to(repeat('x', 200), 'UTF8') FROM generate_series(0, {KEYS}) AS id",
            database.schema
        );
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&pool).await?;
        Ok(database)
    }

    pub(crate) async fn describe(&self) -> Result<String, Failure> {
        let mut shown = Vec::new();
        for setting in ["server_version", "fsync", "synchronous_commit", "full_page_writes"] {
            let value: String =
                sqlx::query("SELECT current_setting($1)").bind(setting).fetch_one(&self.pool(1).await?).await?.get(0);
            shown.push(format!("{setting} {value}"));
        }
        Ok(shown.join(", "))
    }

    pub(crate) async fn pool(&self, size: u32) -> Result<PgPool, Failure> {
        self.pool_on(self.options.clone(), size).await
    }

    /// Connections are not tested before each use: a test is a round trip, for every variant alike.
    pub(crate) async fn pool_on(&self, options: PgConnectOptions, size: u32) -> Result<PgPool, Failure> {
        let options_of_pool =
            PgPoolOptions::new().min_connections(size).max_connections(size).test_before_acquire(false);
        Ok(options_of_pool.connect_with(options).await?)
    }

    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        let pool = self.pool_on(self.server.clone(), 1).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {} CASCADE", self.schema))).execute(&pool).await?;
        Ok(())
    }
}
