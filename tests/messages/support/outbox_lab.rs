//! A database with the tables of an outbox, on which no row of pending events can be updated (M23).

use std::future::Future;

use idempotency::outbox::{Outbox, OutboxBuilder};
use idempotency::testing::outbox::Harness;
use idempotency::{OutboxDialect, SqliteStore};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, PgPool, Pool, Postgres, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;

use super::{mysql, postgres};

/// What a test does with the database itself.
pub trait Lab: Harness {
    fn new() -> impl Future<Output = Self> + Send
    where
        Self: Sized;
    fn pool(&self) -> &Pool<Self::DB>;
    fn run(&self, sql: String) -> impl Future<Output = u64> + Send;
    fn count(&self, sql: String) -> impl Future<Output = i64> + Send;
}

async fn migrated<DB: OutboxDialect>(pool: &Pool<DB>) {
    Outbox::new(pool.clone()).await.unwrap().migrate().await.unwrap();
}

pub struct PostgresLab {
    pool: PgPool,
    schema: Option<String>,
}

impl PostgresLab {
    pub async fn on(pool: PgPool) -> Self {
        migrated(&pool).await;
        sqlx::raw_sql(
            "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS
                 $$BEGIN RAISE EXCEPTION 'pending events are never updated'; END$$;
             CREATE TRIGGER forbid BEFORE UPDATE ON idempotency_outbox FOR EACH STATEMENT EXECUTE FUNCTION forbid()",
        )
        .execute(&pool)
        .await
        .unwrap();
        Self { pool, schema: None }
    }

    /// Through PgBouncer, which passes no search path on.
    pub async fn pooled() -> Self {
        let (schema, options) = postgres::new_schema().await;
        let direct = postgres::pool_on(options.options([("search_path", schema.as_str())]), 2).await;
        Self::on(direct).await;
        let pooled = postgres::pooled_options().statement_cache_capacity(0);
        Self { pool: postgres::pool_on(pooled, 20).await, schema: Some(schema) }
    }
}

impl Harness for PostgresLab {
    type DB = Postgres;
    const WRITERS: bool = true;
    const SHARES: bool = true;

    async fn build(&self, builder: OutboxBuilder<Postgres>) -> Outbox<Postgres> {
        self.schema.iter().fold(builder, OutboxBuilder::schema).build(self.pool.clone()).await.unwrap()
    }

    fn builder(&self) -> OutboxBuilder<Postgres> {
        let builder = Outbox::builder().without_statement_cache();
        self.schema.iter().fold(builder, OutboxBuilder::schema)
    }

    async fn transaction(&self) -> Transaction<'static, Postgres> {
        self.pool.begin().await.unwrap()
    }
}

impl Lab for PostgresLab {
    async fn new() -> Self {
        Self::on(postgres::pool_of(20).await).await
    }

    fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn run(&self, sql: String) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }
}

pub struct SqliteLab {
    pool: SqlitePool,
    _folder: TempDir,
}

impl Harness for SqliteLab {
    type DB = Sqlite;
    const WRITERS: bool = false;
    const SHARES: bool = false;

    async fn build(&self, builder: OutboxBuilder<Sqlite>) -> Outbox<Sqlite> {
        builder.build(self.pool.clone()).await.unwrap()
    }

    async fn transaction(&self) -> Transaction<'static, Sqlite> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }
}

impl Lab for SqliteLab {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteStore::connect_options(folder.path().join("outbox.sqlite"));
        let pool = SqlitePoolOptions::new().max_connections(8).connect_lazy_with(options);
        migrated(&pool).await;
        sqlx::raw_sql(
            "CREATE TRIGGER forbid BEFORE UPDATE ON idempotency_outbox
             BEGIN SELECT RAISE(ABORT, 'pending events are never updated'); END",
        )
        .execute(&pool)
        .await
        .unwrap();
        Self { pool, _folder: folder }
    }

    fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    async fn run(&self, sql: String) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }
}

pub struct MariaDbLab(MySqlPool);

impl MariaDbLab {
    /// Where the host's sessions begin with a statement of its own.
    pub async fn in_sessions_of(first: &'static str) -> Self {
        let options = mysql::options().database(&mysql::new_database().await);
        let pool = mysql::pool_with(options, 20, first).await;
        migrated(&pool).await;
        sqlx::raw_sql(
            "CREATE TRIGGER forbid BEFORE UPDATE ON idempotency_outbox FOR EACH ROW
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'pending events are never updated'",
        )
        .execute(&pool)
        .await
        .unwrap();
        Self(pool)
    }
}

impl Harness for MariaDbLab {
    type DB = MySql;
    const WRITERS: bool = true;
    const SHARES: bool = true;

    async fn build(&self, builder: OutboxBuilder<MySql>) -> Outbox<MySql> {
        builder.build(self.0.clone()).await.unwrap()
    }

    async fn transaction(&self) -> Transaction<'static, MySql> {
        self.0.begin().await.unwrap()
    }
}

impl Lab for MariaDbLab {
    async fn new() -> Self {
        Self::in_sessions_of("SET @nothing = 1").await
    }

    fn pool(&self) -> &MySqlPool {
        &self.0
    }

    async fn run(&self, sql: String) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.0).await.unwrap()
    }
}
