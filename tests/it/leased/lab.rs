//! A database with a table of leases and one of business effects.

use std::future::Future;
use std::time::Duration;

use axum::Router;
use http::{Request, StatusCode};
use idempotency::store::{AnyStore, Claim, ClaimRequest, Fence, LeaseControl, OnUnknown};
use idempotency::store::{Operate, Purge, Settled, Settlement, Store, Verdict};
use idempotency::testing::store::Harness;
use idempotency::{Attempt, Error, IdempotencyLayer, LeaseDialect, LeaseStore, LookupKey, Scope, SqliteStore};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, PgPool, Pool, Postgres, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::support::http::{Answered, post, send};
use crate::support::mysql;
use crate::support::postgres::{options, pool_of, pool_on, pooled_database};

/// Long enough for a busy machine, short enough for what is cut off to end by itself.
pub const LEASE: Duration = Duration::from_secs(4);

pub trait Lab: Sized + Send + Sync + 'static {
    type DB: LeaseDialect;
    /// The first instant of the engine's calendar here.
    const EPOCH: &'static str;

    fn new() -> impl Future<Output = Self> + Send;
    fn pool(&self) -> &Pool<Self::DB>;
    /// Another database with the same tables, which no transaction of this one can reach. `None` where one server's
    /// databases share their transactions.
    fn elsewhere(&self) -> impl Future<Output = Option<Pool<Self::DB>>> + Send;
    fn run(&self, sql: String) -> impl Future<Output = u64> + Send;
    fn count(&self, sql: String) -> impl Future<Output = i64> + Send;
    fn write(
        tx: &mut Transaction<'_, Self::DB>,
        what: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// A handle on the table, as another process would open it.
    fn store(&self) -> impl Future<Output = LeaseStore<Self::DB>> + Send {
        async { LeaseStore::new(self.pool().clone()).await.unwrap().lease(LEASE).unwrap() }
    }

    fn begin(&self) -> impl Future<Output = Transaction<'static, Self::DB>> + Send {
        async { self.pool().begin().await.unwrap() }
    }

    fn end_leases(&self) -> impl Future<Output = ()> + Send {
        async {
            self.run(format!("UPDATE idempotency_leases SET locked_until = {} WHERE state = 0", Self::EPOCH)).await;
        }
    }

    /// The business effects that are committed.
    fn effects(&self) -> impl Future<Output = i64> + Send {
        self.count("SELECT count(*) FROM effects".to_owned())
    }
}

/// What a test does itself goes through a pool of its own, whose settings are the server's.
pub struct PostgresLab {
    pool: PgPool,
    own: PgPool,
}

impl PostgresLab {
    pub async fn on(pool: PgPool) -> Self {
        LeaseStore::new(pool.clone()).await.unwrap().migrate().await.unwrap();
        sqlx::raw_sql("CREATE TABLE effects (what text NOT NULL)").execute(&pool).await.unwrap();
        let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&pool).await.unwrap();
        let own = pool_on(options().options([("search_path", schema)]), 2).await;
        Self { pool, own }
    }

    /// Through PgBouncer in transaction mode.
    pub async fn pooled() -> Self {
        let (own, pool) = pooled_database(20).await;
        LeaseStore::new(pool.clone()).await.unwrap().migrate().await.unwrap();
        Self { pool, own }
    }
}

impl Lab for PostgresLab {
    type DB = Postgres;
    const EPOCH: &'static str = "timestamptz 'epoch'";

    async fn new() -> Self {
        Self::on(pool_of(20).await).await
    }

    fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn elsewhere(&self) -> Option<PgPool> {
        let name = format!("d_{}", uuid::Uuid::new_v4().simple());
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&self.own).await.unwrap();
        let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&self.own).await.unwrap();
        let pool = pool_on(options().database(&name), 2).await;
        LeaseStore::in_schema(pool.clone(), &schema).await.unwrap().migrate().await.unwrap();
        Some(pool)
    }

    async fn run(&self, sql: String) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.own).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.own).await.unwrap()
    }

    async fn write(tx: &mut Transaction<'_, Postgres>, what: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (what) VALUES ($1)").bind(what).execute(&mut **tx).await.map(drop)
    }
}

pub struct SqliteLab {
    folder: TempDir,
    pool: SqlitePool,
}

impl SqliteLab {
    fn pool_at(folder: &TempDir, name: &str) -> SqlitePool {
        let options = SqliteStore::connect_options(folder.path().join(name));
        SqlitePoolOptions::new().max_connections(8).connect_lazy_with(options)
    }
}

impl Lab for SqliteLab {
    type DB = Sqlite;
    const EPOCH: &'static str = "0";

    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = Self::pool_at(&folder, "leases.sqlite");
        LeaseStore::new(pool.clone()).await.unwrap().migrate().await.unwrap();
        sqlx::query("CREATE TABLE effects (what TEXT NOT NULL)").execute(&pool).await.unwrap();
        Self { folder, pool }
    }

    fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    async fn elsewhere(&self) -> Option<SqlitePool> {
        let pool = Self::pool_at(&self.folder, "elsewhere.sqlite");
        LeaseStore::new(pool.clone()).await.unwrap().migrate().await.unwrap();
        Some(pool)
    }

    async fn run(&self, sql: String) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }

    async fn write(tx: &mut Transaction<'_, Sqlite>, what: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (what) VALUES (?)").bind(what).execute(&mut **tx).await.map(drop)
    }
}

/// Leases on MariaDB, in one of the ways that its store has.
pub struct MySqlLab<const LIKE_MYSQL: bool> {
    pool: MySqlPool,
    own: MySqlPool,
}

pub type MariaDbLab = MySqlLab<false>;
/// As on MySQL.
pub type NoWaitLockLab = MySqlLab<true>;

impl<const LIKE_MYSQL: bool> MySqlLab<LIKE_MYSQL> {
    /// Where the host's sessions begin with a statement of its own.
    pub async fn in_sessions_of(first: &'static str) -> Self {
        let options = mysql::options().database(&mysql::new_database().await);
        let pool = mysql::pool_with(options.clone(), 20, first).await;
        LeaseStore::new(pool.clone()).await.unwrap().migrate().await.unwrap();
        mysql::create_effects(&pool).await;
        Self { pool, own: mysql::pool_on(options, 2).await }
    }
}

impl<const LIKE_MYSQL: bool> Lab for MySqlLab<LIKE_MYSQL> {
    type DB = MySql;
    const EPOCH: &'static str = "TIMESTAMP'1970-01-01 00:00:00'";

    async fn new() -> Self {
        Self::in_sessions_of("SET @nothing = 1").await
    }

    fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    async fn elsewhere(&self) -> Option<MySqlPool> {
        None
    }

    async fn store(&self) -> LeaseStore<MySql> {
        let pool = self.pool.clone();
        let store = if LIKE_MYSQL { LeaseStore::like_mysql(pool).await } else { LeaseStore::new(pool).await };
        store.unwrap().lease(LEASE).unwrap()
    }

    async fn run(&self, sql: String) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.own).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.own).await.unwrap()
    }

    async fn write(tx: &mut Transaction<'_, MySql>, what: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (what) VALUES (?)").bind(what).execute(&mut **tx).await.map(drop)
    }
}

/// The harness of the conformance kit.
pub struct Leased<L>(pub L);

impl<L: Lab> Harness for Leased<L> {
    type Store = LeaseStore<L::DB>;

    const FREES_ON_DROP: bool = false;

    async fn store(&self) -> Self::Store {
        self.0.store().await
    }

    async fn expire(&self, lookup: &LookupKey) {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let changed = self.0.run(format!(
            "UPDATE idempotency_leases SET expires_at = {} WHERE scope = {} AND id_key = {} AND endpoint = {}",
            L::EPOCH,
            quoted(lookup.scope().as_str()),
            quoted(lookup.key().as_str()),
            quoted(lookup.endpoint().as_str()),
        ));
        assert_eq!(changed.await, 1);
    }

    async fn store_on_unknown(&self, on_unknown: OnUnknown) -> Option<Self::Store> {
        Some(self.0.store().await.on_unknown(on_unknown))
    }

    async fn records(&self) -> u64 {
        self.0.count("SELECT count(*) FROM idempotency_leases".to_owned()).await.try_into().unwrap()
    }

    async fn end_leases(&self) {
        self.0.end_leases().await;
    }
}

/// The same in some wrapping.
pub struct Wrapped<L: Lab, W> {
    pub leased: Leased<L>,
    pub wrap: fn(LeaseStore<L::DB>) -> W,
}

impl<L: Lab, W: Store> Harness for Wrapped<L, W> {
    type Store = W;

    const FREES_ON_DROP: bool = false;

    async fn store(&self) -> W {
        (self.wrap)(self.leased.store().await)
    }

    async fn expire(&self, lookup: &LookupKey) {
        self.leased.expire(lookup).await;
    }

    async fn store_on_unknown(&self, on_unknown: OnUnknown) -> Option<W> {
        Some((self.wrap)(self.leased.store_on_unknown(on_unknown).await?))
    }

    async fn records(&self) -> u64 {
        self.leased.records().await
    }

    async fn end_leases(&self) {
        self.leased.end_leases().await;
    }
}

pub fn any<S: Purge + Operate>(store: S) -> AnyStore {
    AnyStore::operable(store)
}

/// A store whose owners never renew: what a stopped process looks like from outside.
#[derive(Clone)]
pub struct Unrenewed<S>(pub S);

pub struct UnrenewedClaim<C>(C);

impl<S: Store> Store for Unrenewed<S> {
    type Claim = UnrenewedClaim<S::Claim>;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<Self::Claim>, Error> {
        Ok(self.0.claim(request).await?.map_claim(UnrenewedClaim))
    }
}

impl<C: Claim> Claim for UnrenewedClaim<C> {
    fn attempt(&self) -> u64 {
        self.0.attempt()
    }

    fn fence(&self) -> Option<Fence> {
        self.0.fence()
    }

    fn lease(&self) -> Option<Duration> {
        self.0.lease()
    }

    fn control(&self) -> Option<std::sync::Arc<dyn LeaseControl>> {
        self.0.control()
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        self.0.settle(settlement).await
    }
}

/// A handler that is running, in the test's hands.
pub struct Running {
    pub attempt: Attempt,
    end: oneshot::Sender<(StatusCode, &'static str)>,
    answer: JoinHandle<Answered>,
}

impl Running {
    /// Sends `POST /` with this key through a layer of its own, and waits until its handler runs.
    pub async fn start<S: Store>(store: S, key: &'static str) -> Self {
        let (entered, mut enter) = mpsc::unbounded_channel();
        let app = Router::new().fallback(async move |request: Request<axum::body::Body>| {
            let attempt = request.extensions().get::<Attempt>().cloned().unwrap();
            let (end, ended) = oneshot::channel();
            entered.send((attempt, end)).unwrap();
            ended.await.unwrap()
        });
        let app = app.layer(IdempotencyLayer::new(store, Scope::shared()));
        let mut answer = tokio::spawn(async move { send(&app, post(key)).await });
        tokio::select! {
            Some((attempt, end)) = enter.recv() => Self { attempt, end, answer },
            answered = &mut answer => panic!("the handler does not run: {}", answered.unwrap().said()),
        }
    }

    /// Lets the handler answer, and gives what its client was told.
    pub async fn end(self, status: u16, text: &'static str) -> Answered {
        self.end.send((StatusCode::from_u16(status).unwrap(), text)).unwrap();
        self.answer.await.unwrap()
    }
}

/// A service over this store that answers by itself.
pub fn answering<S: Store>(store: S, text: &'static str) -> Router {
    Router::new().fallback(async move || text).layer(IdempotencyLayer::new(store, Scope::shared()))
}
