//! A database of its own for each test, with everything that a purger works on.

use std::future::Future;
use std::time::Duration;

use idempotency::inbox::Inbox;
use idempotency::outbox::Outbox;
use idempotency::purge::Purger;
use idempotency::{LeaseStore, MySqlStore, PostgresStore, SqliteStore};
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, Sqlite};

use crate::support::{mysql, postgres};

/// How long the outbox of a lab keeps dead letters.
pub const DEAD: Duration = Duration::from_secs(60);

/// The tables that are purged, what makes a row expire, and what a row has beside its key.
pub const TABLES: [(&str, &str); 5] = [
    ("idempotency_keys", "expires_at"),
    ("idempotency_leases", "expires_at"),
    ("idempotency_inbox", "expires_at"),
    ("idempotency_inbox_failures", "expires_at"),
    ("idempotency_outbox_dead", "died_at"),
];

pub trait Lab: Send + Sync + Sized {
    type DB: sqlx::Database;
    /// False.
    const NO: &'static str = "0";
    /// Columns of a mark that this engine alone has, each with a comma, and their values.
    const MARK: [&'static str; 2] = ["", ""];
    fn new(connections: u32) -> impl Future<Output = Self> + Send;
    fn pool(&self) -> &Pool<Self::DB>;
    fn run(&self, sql: String) -> impl Future<Output = u64> + Send;
    fn count(&self, sql: String) -> impl Future<Output = i64> + Send;
    /// On everything, with handles of its own, as another process has them.
    fn purger(&self) -> impl Future<Output = Purger> + Send;
    /// So many seconds from now; negative in the past.
    fn at(seconds: f64) -> String;
    fn bytes(text: &str) -> String;
    /// Locks of purgers that anybody holds.
    fn locks(&self) -> impl Future<Output = i64> + Send;

    /// Rows `from..to` of every table, expired for so many seconds (or to expire).
    fn fill(&self, range: std::ops::Range<u32>, expired_for: f64) -> impl Future<Output = ()> + Send {
        async move {
            for (table, _) in TABLES {
                self.fill_table(table, range.clone(), expired_for).await;
            }
        }
    }

    /// The same of one.
    fn fill_table(
        &self,
        table: &str,
        range: std::ops::Range<u32>,
        expired_for: f64,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let rows: Vec<String> = range.map(|n| Self::row(table, n, expired_for)).collect();
            for rows in rows.chunks(500) {
                let columns = columns(table).replace("accepted_at", &format!("{}accepted_at", Self::own_of(table)));
                self.run(format!("INSERT INTO {table} {columns} VALUES {}", rows.join(","))).await;
            }
        }
    }

    fn own_of(table: &str) -> &'static str {
        if table == "idempotency_inbox" { Self::MARK[0] } else { "" }
    }

    fn row(table: &str, n: u32, expired_for: f64) -> String {
        let (b, now, then) = (Self::bytes, Self::at(0.0), Self::at(-expired_for));
        let id = format!("'00000000-0000-4000-8000-{n:012x}'");
        match table {
            "idempotency_keys" => {
                format!(
                    "({},{},{},1,{},{},{now},{then})",
                    Self::text("s"),
                    Self::text(&format!("k{n}")),
                    Self::text("POST /"),
                    b("f"),
                    b("t")
                )
            }
            "idempotency_leases" => {
                format!(
                    "({},{},{},0,{},{},1,1,{},{then},{now},{then})",
                    Self::text("s"),
                    Self::text(&format!("k{n}")),
                    Self::text("POST /"),
                    b("f"),
                    b("t"),
                    Self::NO
                )
            }
            "idempotency_inbox" => {
                format!("({},{},{},{},{}{now},{then})", b("c"), b("s"), b(&n.to_string()), b("t"), Self::MARK[1])
            }
            "idempotency_inbox_failures" => format!("({},{},{},1,{then})", b("c"), b("s"), b(&n.to_string())),
            _ => {
                let died = Self::at(-expired_for - DEAD.as_secs_f64());
                format!("({id},1,{n},'d','t','k','e','/',{},{now},0,1,'no',{died})", b("p"))
            }
        }
    }
    fn text(text: &str) -> String {
        format!("'{text}'")
    }

    /// How many rows each table has.
    fn rows(&self) -> impl Future<Output = [i64; 5]> + Send {
        async move {
            let mut rows = [0; 5];
            for (rows, (table, _)) in rows.iter_mut().zip(TABLES) {
                *rows = self.count(format!("SELECT count(*) FROM {table}")).await;
            }
            rows
        }
    }
}

fn columns(table: &str) -> &'static str {
    match table {
        "idempotency_keys" => "(scope,id_key,endpoint,state,fingerprint,token,accepted_at,expires_at)",
        "idempotency_leases" => {
            "(scope,id_key,endpoint,state,fingerprint,token,fence,attempt,held,locked_until,accepted_at,expires_at)"
        }
        "idempotency_inbox" => "(consumer,source,id,token,accepted_at,expires_at)",
        "idempotency_inbox_failures" => "(consumer,source,id,failures,expires_at)",
        _ => {
            "(id,bucket,seq,destination,aggregatetype,aggregateid,type,source,payload,enqueued_at,redrives,attempts,error,died_at)"
        }
    }
}

async fn everything<DB>(pool: &Pool<DB>, purger: Purger) -> Purger
where
    DB: idempotency::LeaseDialect + idempotency::inbox::InboxDialect + idempotency::OutboxDialect,
{
    let leases = LeaseStore::new(pool.clone()).await.unwrap();
    let inbox = Inbox::new(pool.clone(), "c").await.unwrap();
    let outbox = Outbox::builder().dead_retention(DEAD).build(pool.clone()).await.unwrap();
    purger.keys("leases", leases).inbox("inbox", inbox).outbox("outbox", outbox)
}

/// Its purgers and stores go through PgBouncer in transaction mode where `POOLED`: two statements that are not in one
/// transaction may be of two sessions.
pub struct PostgresLab<const POOLED: bool = false> {
    direct: Pool<Postgres>,
    purgers: Pool<Postgres>,
}

impl<const POOLED: bool> Lab for PostgresLab<POOLED> {
    type DB = Postgres;
    const NO: &'static str = "false";
    const MARK: [&'static str; 2] = ["claim_xid,", "'1',"];
    async fn new(connections: u32) -> Self {
        let (direct, purgers) = if POOLED {
            postgres::pooled_database(connections).await
        } else {
            let pool = postgres::pool_of(connections).await;
            (pool.clone(), pool)
        };
        postgres::store_on(&purgers).await;
        Self { direct, purgers }
    }
    fn pool(&self) -> &Pool<Postgres> {
        &self.direct
    }
    async fn run(&self, sql: String) -> u64 {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.direct).await.unwrap().rows_affected()
    }
    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.direct).await.unwrap()
    }
    async fn purger(&self) -> Purger {
        let store = PostgresStore::new(self.purgers.clone()).await.unwrap();
        everything(&self.purgers, Purger::new().keys("keys", store)).await
    }
    fn at(seconds: f64) -> String {
        format!("clock_timestamp() + {seconds} * interval '1 second'")
    }
    fn bytes(text: &str) -> String {
        format!("'{text}'::bytea")
    }
    async fn locks(&self) -> i64 {
        // Of sessions of this test alone.
        self.count(
            "SELECT count(*) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation \
             JOIN pg_locks AS a ON a.pid = l.pid AND a.locktype = 'advisory' \
             WHERE c.relname = 'idempotency_keys' AND c.relnamespace = current_schema()::regnamespace"
                .into(),
        )
        .await
    }
}

pub struct MariaDbLab(Pool<MySql>, String);

impl Lab for MariaDbLab {
    type DB = MySql;
    async fn new(connections: u32) -> Self {
        let name = mysql::new_database().await;
        let pool = mysql::pool_on(mysql::options().database(&name), connections).await;
        MySqlStore::new(pool.clone()).await.unwrap().migrate().await.unwrap();
        Self(pool, name)
    }
    fn pool(&self) -> &Pool<MySql> {
        &self.0
    }
    async fn run(&self, sql: String) -> u64 {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.0).await.unwrap().rows_affected()
    }
    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.0).await.unwrap()
    }
    async fn purger(&self) -> Purger {
        let store = MySqlStore::new(self.0.clone()).await.unwrap();
        everything(&self.0, Purger::new().keys("keys", store)).await
    }
    fn at(seconds: f64) -> String {
        format!("UTC_TIMESTAMP(6) + INTERVAL {:.0} MICROSECOND", seconds * 1e6)
    }
    fn bytes(text: &str) -> String {
        format!("'{text}'")
    }
    async fn locks(&self) -> i64 {
        // The name is the purger's own, frozen.
        let name = lock_name(&self.1);
        self.count(format!("SELECT IS_USED_LOCK('{name}') IS NOT NULL")).await
    }
}

/// Engines where purgers of several processes meet at a lock of their own. Its name is frozen: old and new processes meet.
pub trait Locked: Lab {
    /// Has it until this is dropped, or a moment longer.
    fn hold_lock(&self) -> impl Future<Output = sqlx::Transaction<'static, Self::DB>> + Send;
}

impl<const POOLED: bool> Locked for PostgresLab<POOLED> {
    async fn hold_lock(&self) -> sqlx::Transaction<'static, Postgres> {
        let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&self.direct).await.unwrap();
        let digest = digest(b"idempotency/purge/1\0", &schema);
        let lock = i64::from_be_bytes(digest[..8].try_into().unwrap());
        let mut transaction = self.direct.begin().await.unwrap();
        let got = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)").bind(lock);
        let got: bool = got.fetch_one(&mut *transaction).await.unwrap();
        assert!(got, "nobody has it");
        transaction
    }
}

impl Locked for MariaDbLab {
    async fn hold_lock(&self) -> sqlx::Transaction<'static, MySql> {
        // A session's, so in a pool of its own that ends with it.
        let pool = mysql::pool_on(mysql::options().database(&self.1), 1).await;
        let mut transaction = pool.begin().await.unwrap();
        let got = sqlx::query_scalar("SELECT GET_LOCK(?, 0)").bind(lock_name(&self.1));
        let got: i64 = got.fetch_one(&mut *transaction).await.unwrap();
        assert_eq!(got, 1, "nobody has it");
        transaction
    }
}

fn digest(domain: &[u8], name: &str) -> [u8; 32] {
    use sha2::{Digest, Sha256};
    Sha256::new().chain_update(domain).chain_update(name).finalize().into()
}

fn lock_name(database: &str) -> String {
    let digest = digest(b"idempotency/mysql-purge/1\0", database);
    format!("idem-p:{}", digest[..24].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

pub struct SqliteLab(SqliteStore, tempfile::TempDir);

impl Lab for SqliteLab {
    type DB = Sqlite;
    async fn new(_: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("purge.sqlite")).await.unwrap();
        store.migrate().await.unwrap();
        Self(store, folder)
    }
    fn pool(&self) -> &Pool<Sqlite> {
        self.0.pool()
    }
    async fn run(&self, sql: String) -> u64 {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.pool()).await.unwrap().rows_affected()
    }
    async fn count(&self, sql: String) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self.pool()).await.unwrap()
    }
    async fn purger(&self) -> Purger {
        let store = SqliteStore::open(self.1.path().join("purge.sqlite")).await.unwrap();
        let pool = store.pool().clone();
        everything(&pool, Purger::new().keys("keys", store)).await
    }
    fn at(seconds: f64) -> String {
        format!("CAST(unixepoch('subsec') * 1000000 + {:.0} AS INTEGER)", seconds * 1e6)
    }
    fn bytes(text: &str) -> String {
        format!("CAST('{text}' AS BLOB)")
    }
    async fn locks(&self) -> i64 {
        // Whoever had the write lock would make this fail.
        self.run("BEGIN IMMEDIATE; ROLLBACK".into()).await;
        0
    }
}
