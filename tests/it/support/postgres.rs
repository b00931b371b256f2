//! Postgres for tests: each test has a schema of its own on the server that `tests/run` starts.

use idempotency::LookupKey;
use idempotency::PostgresStore;
use idempotency::store::{Isolation, PostgresStoreBuilder};
use idempotency::testing::store::Harness;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Options of the test server. A missing server fails the test: none passes by being skipped.
pub fn options() -> PgConnectOptions {
    let url = std::env::var("POSTGRES_URL").expect("POSTGRES_URL is not set; run `tests/run`, which starts a server");
    url.parse().expect("POSTGRES_URL is not a URL of Postgres")
}

/// Options of PgBouncer in transaction mode before that server. It passes no `options` on, so schemas are named.
pub fn pooled_options() -> PgConnectOptions {
    let url = std::env::var("PGBOUNCER_URL").expect("PGBOUNCER_URL is not set; run `tests/run`, which starts one");
    url.parse().expect("PGBOUNCER_URL is not a URL of Postgres")
}

/// A pool whose search path leads to a new schema.
pub async fn pool_of(size: u32) -> PgPool {
    let (schema, options) = new_schema().await;
    pool_on(options.options([("search_path", schema.as_str())]), size).await
}

pub async fn pool_on(options: PgConnectOptions, size: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(size)
        .test_before_acquire(false)
        .connect_with(options)
        .await
        .expect("the test server answers")
}

/// A database of its own for what goes through PgBouncer, which passes no search path on: a pool on the server itself, and one
/// that goes through it, where no statement stays prepared.
pub async fn pooled_database(size: u32) -> (PgPool, PgPool) {
    let name = format!("d_{}", uuid::Uuid::new_v4().simple());
    let admin = pool_on(options(), 1).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&admin).await.unwrap();
    admin.close().await;
    let pooled = pooled_options().database(&name).statement_cache_capacity(0);
    (pool_on(options().database(&name), 2).await, pool_on(pooled, size).await)
}

pub async fn new_schema() -> (String, PgConnectOptions) {
    let schema = format!("t_{}", uuid::Uuid::new_v4().simple());
    let admin = pool_on(options(), 1).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&admin).await.unwrap();
    admin.close().await;
    (schema, options())
}

/// A migrated store on a pool of its own schema.
pub async fn store_on(pool: &PgPool) -> PostgresStore {
    let store = PostgresStore::new(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Whether this connection is inside a transaction: there `now()` stands still. Asked by the simple protocol, in whose
/// single message an implicit transaction begins with its statement.
pub async fn is_inside_transaction(connection: &mut sqlx::PgConnection) -> bool {
    sqlx::raw_sql("SELECT 1").execute(&mut *connection).await.unwrap();
    let row = sqlx::raw_sql("SELECT now() <> statement_timestamp()").fetch_one(connection).await.unwrap();
    sqlx::Row::get(&row, 0)
}

/// The harness of the conformance kit.
pub struct PostgresHarness {
    pool: PgPool,
    isolation: Isolation,
    schema: Option<String>,
}

impl PostgresHarness {
    pub async fn new(isolation: Isolation) -> Self {
        Self::on(pool_of(20).await, isolation).await
    }

    pub async fn on(pool: PgPool, isolation: Isolation) -> Self {
        store_on(&pool).await;
        Self { pool, isolation, schema: None }
    }

    /// In a schema of its own, through PgBouncer with these options.
    pub async fn pooled(options: PgConnectOptions, isolation: Isolation) -> Self {
        let (schema, _) = new_schema().await;
        let harness = Self { pool: pool_on(options, 20).await, isolation, schema: Some(schema) };
        harness.store().await.migrate().await.unwrap();
        harness
    }

    fn builder(&self) -> PostgresStoreBuilder {
        let builder = PostgresStore::builder(self.pool.clone()).isolation(self.isolation);
        self.schema.iter().fold(builder, PostgresStoreBuilder::schema)
    }

    /// A text about the table of keys.
    fn about_keys(&self, text: &str) -> sqlx::AssertSqlSafe<String> {
        let schema = self.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
        sqlx::AssertSqlSafe(text.replace("{keys}", &format!("{schema}idempotency_keys")))
    }
}

impl Harness for PostgresHarness {
    type Store = PostgresStore;

    const FREES_ON_DROP: bool = true;

    async fn store(&self) -> PostgresStore {
        self.builder().build().await.unwrap()
    }

    async fn expire(&self, lookup: &LookupKey) {
        let text = "UPDATE {keys} SET expires_at = clock_timestamp() - interval '1 millisecond'
             WHERE scope = $1 AND id_key = $2 AND endpoint = $3";
        // In a transaction: an unnamed statement is prepared and run in two steps, and a pooler may part them.
        let mut transaction = self.pool.begin().await.unwrap();
        let changed = sqlx::query(self.about_keys(text))
            .bind(lookup.scope().as_str())
            .bind(lookup.key().as_str())
            .bind(lookup.endpoint().as_str())
            .persistent(false)
            .execute(&mut *transaction)
            .await
            .unwrap();
        assert_eq!(changed.rows_affected(), 1);
        transaction.commit().await.unwrap();
    }

    async fn records(&self) -> u64 {
        let row = sqlx::raw_sql(self.about_keys("SELECT count(*) FROM {keys}")).fetch_one(&self.pool).await.unwrap();
        sqlx::Row::get::<i64, _>(&row, 0).try_into().unwrap()
    }
}
