//! The first version on SQLite.

use std::fs::File;

use idempotency::SqliteStore;
use idempotency::store::{AnyStore, ClaimRequest};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqlitePoolOptions};
use sqlx::{Row, Sqlite, SqlitePool};
use tempfile::TempDir;
use uuid::Uuid;

use crate::first::{CONSUMER, DESTINATION, First, KEY, LEASE, RETENTION, SOURCE, Texts, bound, expand, of_payload};

const TABLES: [&str; 4] = [
    include_str!("first/sqlite/0001_keys.sql"),
    include_str!("first/sqlite/0002_leases.sql"),
    include_str!("first/sqlite/0003_inbox.sql"),
    include_str!("first/sqlite/0004_outbox.sql"),
];
const HISTORY: &str = include_str!("first/sqlite/history.sql");

pub struct FirstSqlite {
    pool: SqlitePool,
    texts: Texts,
    /// The name that its announcements bear, and the lock that says that it lives.
    owner: Uuid,
    _alive: File,
    _folder: TempDir,
}

type Bound = Query<'static, Sqlite, SqliteArguments>;

impl FirstSqlite {
    fn query(&self, name: &str) -> Bound {
        sqlx::query(self.texts.get(name))
    }

    fn of(&self, name: &str, request: &ClaimRequest) -> Bound {
        bound!(self.query(name), request)
    }

    fn owned(&self, name: &str, request: &ClaimRequest) -> Bound {
        self.of(name, request).bind(request.token().as_bytes().to_vec())
    }

    async fn changed(&self, query: Bound) -> bool {
        query.execute(&self.pool).await.unwrap().rows_affected() == 1
    }

    async fn stored(&self, name: &str, request: &ClaimRequest) -> Option<Vec<u8>> {
        let row = self.of(name, request).fetch_optional(&self.pool).await.unwrap()?;
        let same = row.get::<Vec<u8>, _>("fingerprint") == request.fingerprint().to_bytes();
        (row.get::<i64, _>("state") == 1 && same).then(|| row.get("answer"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl First for FirstSqlite {
    type DB = Sqlite;
    type Claim = PoolConnection<Sqlite>;
    /// One relay works, by a lock on a file.
    const SHARES: bool = false;

    async fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteStore::connect_options(folder.path().join("first.sqlite"));
        let pool = SqlitePoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
        let owner = Uuid::new_v4();
        let alive = File::create(folder.path().join(format!("first.sqlite.idem-{}.lock", owner.simple()))).unwrap();
        alive.try_lock().unwrap();
        let texts = Texts::of(include_str!("first/sqlite/statements.sql"));
        Self { pool, texts, owner, _alive: alive, _folder: folder }
    }

    fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    async fn create(&self, version: i32) {
        sqlx::raw_sql(expand(HISTORY)).execute(&self.pool).await.unwrap();
        for (version, text) in (1..=version).zip(TABLES) {
            sqlx::raw_sql(expand(text)).execute(&self.pool).await.unwrap();
            self.apply(version).await;
        }
    }

    async fn applied(&self, version: i32) -> bool {
        let count: i64 = self.query("applied").bind(version).fetch_one(&self.pool).await.unwrap().get(0);
        count == 1
    }

    async fn apply(&self, version: i32) {
        let record = "INSERT INTO idempotency_migrations (version) VALUES (?1)";
        sqlx::query(record).bind(version).execute(&self.pool).await.unwrap();
    }

    async fn newest(&self) -> AnyStore {
        AnyStore::operable(SqliteStore::new(self.pool.clone()).await.unwrap())
    }

    async fn claim(&self, request: &ClaimRequest) -> Option<PoolConnection<Sqlite>> {
        if self.of("look", request).fetch_optional(&self.pool).await.unwrap().is_some() {
            return None;
        }
        let announce = self.of("announce", request).bind(request.fingerprint().to_bytes().to_vec());
        let announce = announce.bind(request.token().as_bytes().to_vec()).bind(self.owner.as_bytes().to_vec());
        if !self.changed(announce.bind(RETENTION).bind(None::<Vec<u8>>)).await {
            return None;
        }
        let mut connection = self.pool.acquire().await.unwrap();
        for name in ["begin", "savepoint"] {
            sqlx::raw_sql(self.texts.get(name)).execute(&mut *connection).await.unwrap();
        }
        assert_eq!(self.owned("run", request).execute(&mut *connection).await.unwrap().rows_affected(), 1);
        Some(connection)
    }

    async fn settle(&self, mut claim: PoolConnection<Sqlite>, request: &ClaimRequest, answer: &[u8]) {
        sqlx::raw_sql(self.texts.get("release")).execute(&mut *claim).await.unwrap();
        let settle = self.owned("settle", request).bind(RETENTION).bind(answer.to_vec()).bind(0_i64);
        assert_eq!(settle.execute(&mut *claim).await.unwrap().rows_affected(), 1);
        sqlx::raw_sql("COMMIT").execute(&mut *claim).await.unwrap();
    }

    async fn give_up(&self, mut claim: PoolConnection<Sqlite>, request: &ClaimRequest) {
        sqlx::raw_sql("ROLLBACK").execute(&mut *claim).await.unwrap();
        assert!(self.changed(self.owned("take_back", request)).await);
    }

    async fn answer(&self, request: &ClaimRequest) -> Option<Vec<u8>> {
        self.stored("look", request).await
    }

    async fn forget(&self, request: &ClaimRequest) -> bool {
        let row = self.of("look", request).fetch_one(&self.pool).await.unwrap();
        self.changed(self.of("forget", request).bind(row.get::<Vec<u8>, _>("token")).bind(1_i64)).await
    }

    async fn lease(&self, request: &ClaimRequest) -> bool {
        if self.of("lease_look", request).fetch_optional(&self.pool).await.unwrap().is_some() {
            return false;
        }
        let insert = self.of("lease_insert", request).bind(request.fingerprint().to_bytes().to_vec());
        let insert = insert.bind(request.token().as_bytes().to_vec()).bind(true).bind(LEASE).bind(RETENTION);
        insert.fetch_optional(&self.pool).await.unwrap().is_some()
    }

    async fn renew(&self, request: &ClaimRequest) -> bool {
        self.changed(self.owned("lease_renew", request).bind(LEASE)).await
    }

    async fn settle_lease(&self, request: &ClaimRequest, answer: &[u8]) -> bool {
        self.changed(self.owned("lease_settle", request).bind(RETENTION).bind(answer.to_vec())).await
    }

    async fn abandon_lease(&self, request: &ClaimRequest) -> bool {
        self.changed(self.owned("lease_abandon", request).bind(vec![0_u8; 16])).await
    }

    async fn leased_answer(&self, request: &ClaimRequest) -> Option<Vec<u8>> {
        self.stored("lease_look", request).await
    }

    async fn accept(&self, id: &str, payload: &[u8]) -> bool {
        let token = Uuid::new_v4().into_bytes().to_vec();
        let [source, digits] = [SOURCE, id].map(|part| hex(part.as_bytes()));
        let marks = serde_json::json!([[source, digits, hex(&token), hex(&of_payload(payload))]]).to_string();
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let accept = self.query("accept").bind(CONSUMER.as_bytes()).bind(RETENTION).bind(marks.clone());
        if accept.fetch_optional(&mut *transaction).await.unwrap().is_none() {
            let look = self.query("mark_look").bind(CONSUMER.as_bytes()).bind(marks);
            let seen: Vec<u8> = look.fetch_one(&mut *transaction).await.unwrap().get("digest");
            assert_eq!(seen, of_payload(payload));
            return false;
        }
        let at = [CONSUMER, SOURCE, id]
            .iter()
            .fold(self.query("confirm"), |query, part| query.bind(part.as_bytes().to_vec()));
        let done = at.bind(token).bind(RETENTION).execute(&mut *transaction).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
        transaction.commit().await.unwrap();
        true
    }

    async fn enqueue(&self, bucket: u8, payload: &str) {
        let insert = self.query("enqueue").bind(bucket).bind(Uuid::new_v4().to_string());
        let insert = insert.bind(DESTINATION).bind("t").bind(KEY).bind("kind").bind("/first").bind(None::<String>);
        let insert = insert.bind(payload.as_bytes().to_vec()).bind(None::<String>).bind(None::<String>);
        insert.bind(None::<String>).execute(&self.pool).await.unwrap();
    }

    async fn join(&self) -> bool {
        true
    }

    async fn publish(&self, bucket: u8) -> Vec<String> {
        let rows = self.query("poll").bind(bucket).bind(0_i64).bind(100_i64).fetch_all(&self.pool).await.unwrap();
        let acked =
            rows.iter().map(|row| serde_json::json!([bucket, row.get::<i64, _>("seq"), row.get::<String, _>("id")]));
        let acked = serde_json::Value::Array(acked.collect()).to_string();
        let deleted = self.query("delete").bind(acked.clone()).execute(&self.pool).await.unwrap().rows_affected();
        assert_eq!(deleted, rows.len() as u64);
        self.query("delete_failing").bind(acked).execute(&self.pool).await.unwrap();
        rows.iter().map(|row| String::from_utf8(row.get("payload")).unwrap()).collect()
    }

    async fn leave(&self) {}
}

// What was applied somewhere is never changed.
#[test]
fn the_first_tables_are_the_first_migrations() {
    for (version, text) in (1..).zip(TABLES) {
        assert_eq!(SqliteStore::schema_sql(version), Some(text));
    }
}

crate::rolling::on_each_version!(super::FirstSqlite);
