//! MariaDB for tests: each test has a database of its own on the server that `tests/run` starts.

use std::future::Future;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post;
use idempotency::fingerprint::Fingerprint;
use idempotency::store::{ClaimRequest, Isolation, MySqlStoreBuilder, Store};
use idempotency::testing::store::Harness;
use idempotency::{IdempotencyLayer, LookupKey, MySqlStore, Scope, Tx};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Executor, MySql, MySqlConnection, MySqlPool};

/// Options of the test server. A missing server fails the test: none passes by being skipped.
pub fn options() -> MySqlConnectOptions {
    let url = std::env::var("MYSQL_URL").expect("MYSQL_URL is not set; run `tests/run`, which starts a server");
    url.parse().expect("MYSQL_URL is not a URL of MySQL")
}

/// A pool on a new database.
pub async fn pool_of(size: u32) -> MySqlPool {
    pool_on(options().database(&new_database().await), size).await
}

pub async fn pool_on(options: MySqlConnectOptions, size: u32) -> MySqlPool {
    pool_with(options, size, "SET @nothing = 1").await
}

/// A pool whose sessions begin with a statement of their host's.
pub async fn pool_with(options: MySqlConnectOptions, size: u32, first: &'static str) -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(size)
        .test_before_acquire(false)
        .after_connect(move |connection, _| Box::pin(async move { connection.execute(first).await.map(drop) }))
        .connect_with(options)
        .await
        .expect("the test server answers")
}

pub async fn new_database() -> String {
    let name = format!("t_{}", uuid::Uuid::new_v4().simple());
    let admin = pool_on(options(), 1).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&admin).await.unwrap();
    admin.close().await;
    name
}

/// How a store claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// MariaDB's.
    NoWait,
    /// MySQL's.
    NamedLock,
}

pub const WAYS: [Way; 2] = [Way::NoWait, Way::NamedLock];

pub fn builder(pool: &MySqlPool, way: Way) -> MySqlStoreBuilder {
    let builder = MySqlStore::builder(pool.clone());
    match way {
        Way::NoWait => builder,
        Way::NamedLock => builder.named_locks(),
    }
}

/// A migrated store on a pool of its own database.
pub async fn store_on(pool: &MySqlPool, way: Way) -> MySqlStore {
    let store = builder(pool, way).build().await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Whether nothing of the store is left in this session: no transaction, no mode, no lock.
pub async fn assert_is_in_order(connection: &mut MySqlConnection) {
    let state: String = sqlx::query_scalar(
        "SELECT CONCAT_WS(' ', @@in_transaction, @@tx_read_only, @@autocommit, RELEASE_ALL_LOCKS())",
    )
    .fetch_one(connection)
    .await
    .unwrap();
    assert_eq!(state, "0 OFF ON 0", "in a transaction, read-only, autocommit, named locks");
}

/// The harness of the conformance kit.
pub struct MySqlHarness {
    pool: MySqlPool,
    way: Way,
    isolation: Isolation,
}

impl MySqlHarness {
    pub async fn new(way: Way, isolation: Isolation) -> Self {
        Self::on(pool_of(20).await, way, isolation).await
    }

    /// Where the host's own sessions have another level.
    pub async fn in_sessions_of(way: Way, first: &'static str) -> Self {
        let options = options().database(&new_database().await);
        Self::on(pool_with(options, 20, first).await, way, Isolation::ReadCommitted).await
    }

    pub async fn on(pool: MySqlPool, way: Way, isolation: Isolation) -> Self {
        store_on(&pool, way).await;
        Self { pool, way, isolation }
    }
}

impl Harness for MySqlHarness {
    type Store = MySqlStore;

    const FREES_ON_DROP: bool = true;

    async fn store(&self) -> MySqlStore {
        builder(&self.pool, self.way).isolation(self.isolation).build().await.unwrap()
    }

    async fn expire(&self, lookup: &LookupKey) {
        let changed = sqlx::query(
            "UPDATE idempotency_keys SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1000 MICROSECOND
             WHERE scope = ? AND id_key = ? AND endpoint = ?",
        )
        .bind(lookup.scope().as_str().as_bytes())
        .bind(lookup.key().as_str().as_bytes())
        .bind(lookup.endpoint().as_str().as_bytes())
        .execute(&self.pool)
        .await
        .unwrap();
        assert_eq!(changed.rows_affected(), 1);
    }

    async fn records(&self) -> u64 {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM idempotency_keys").fetch_one(&self.pool).await.unwrap();
        count.try_into().unwrap()
    }
}

/// A handler of `POST /effects`, as in `support::app`.
pub fn effects<F, Fut, R, S>(store: S, handler: F) -> Router
where
    F: Fn(Tx<MySql>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoResponse,
    S: Store,
{
    layered(IdempotencyLayer::new(store, Scope::shared()), handler)
}

pub fn layered<F, Fut, R, S>(layer: IdempotencyLayer<S>, handler: F) -> Router
where
    F: Fn(Tx<MySql>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoResponse,
    S: Store,
{
    let handler = move |tx: Tx<MySql>| handler(tx);
    Router::new().route("/effects", post(handler)).layer(layer)
}

/// The business table of the tests.
pub async fn create_effects(pool: &MySqlPool) {
    sqlx::raw_sql(
        "CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(100) NOT NULL) ENGINE = InnoDB",
    )
    .execute(pool)
    .await
    .unwrap();
}

/// Writes one business row through the claim's transaction.
pub async fn write_effect(tx: &mut Tx<MySql>, what: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects (what) VALUES (?)").bind(what).execute(&mut **tx).await.map(drop)
}

/// How many business rows are committed.
pub async fn count_effects(pool: &MySqlPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(pool).await.unwrap()
}

/// The same key by another asker, for the request number `body`.
pub fn asked_again(request: &ClaimRequest, body: u8) -> ClaimRequest {
    let profile = request.fingerprint().profile();
    ClaimRequest::new(request.lookup().clone(), Fingerprint::new(profile, [body; 32]), request.retention())
}
