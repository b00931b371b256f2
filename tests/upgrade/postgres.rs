//! The first version on Postgres.

use idempotency::PostgresStore;
use idempotency::store::{AnyStore, ClaimRequest};
use sha2::{Digest, Sha256};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgPool, Postgres, Row};
use uuid::Uuid;

use crate::first::{
    CONSUMER, DESTINATION, First, KEY, LEASE, RETENTION, SOURCE, Texts, bound, digest, expand, number, of_payload,
};
use crate::postgres_server;

const TABLES: [&str; 4] = [
    include_str!("first/postgres/0001_keys.sql"),
    include_str!("first/postgres/0002_leases.sql"),
    include_str!("first/postgres/0003_inbox.sql"),
    include_str!("first/postgres/0004_outbox.sql"),
];
const HISTORY: &str = include_str!("first/postgres/history.sql");

pub struct FirstPostgres {
    pool: PgPool,
    /// Part of what is locked.
    schema: String,
    texts: Texts,
    relay: Uuid,
}

pub struct Claim {
    connection: PoolConnection<Postgres>,
    place: String,
}

impl FirstPostgres {
    fn query(&self, name: &str) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.texts.get(name))
    }

    fn of(&self, name: &str, request: &ClaimRequest) -> Query<'static, Postgres, PgArguments> {
        bound!(self.query(name), request)
    }

    /// Its own row, by its token.
    fn owned(&self, name: &str, request: &ClaimRequest) -> Query<'static, Postgres, PgArguments> {
        self.of(name, request).bind(request.token().as_bytes().to_vec())
    }

    /// K, and the two halves of F: their encoding is frozen with the first schema.
    fn locks(&self, request: &ClaimRequest) -> (i64, i32, i32) {
        let mut hash = Sha256::new_with_prefix(b"idempotency/postgres-locks/1\0");
        hash.update((self.schema.len() as u64).to_be_bytes());
        hash.update(&self.schema);
        hash.update(request.lookup().digest());
        let digest: [u8; 32] = hash.finalize().into();
        let [p0, p1, p2, p3, p4, p5, p6, p7] = request.fingerprint().profile().to_bytes();
        let half = [digest[8] ^ p0 ^ p4, digest[9] ^ p1 ^ p5, digest[10] ^ p2 ^ p6, digest[11] ^ p3 ^ p7];
        let other = request.fingerprint().digest()[..4].try_into().unwrap();
        (number(digest), i32::from_be_bytes(half), i32::from_be_bytes(other))
    }
}

fn seen(row: &PgRow, request: &ClaimRequest) -> Option<Vec<u8>> {
    let state: Option<i16> = row.get("state");
    let fingerprint: Option<Vec<u8>> = row.get("fingerprint");
    let same = fingerprint.as_deref() == Some(&request.fingerprint().to_bytes()[..]);
    (state == Some(1) && same).then(|| row.get("answer"))
}

impl First for FirstPostgres {
    type DB = Postgres;
    type Claim = Claim;
    const SHARES: bool = true;

    async fn empty() -> Self {
        let (schema, options) = postgres_server::new_schema().await;
        let pool = postgres_server::pool_on(options.options([("search_path", schema.as_str())]), 20).await;
        let texts = Texts::of(include_str!("first/postgres/statements.sql"));
        Self { pool, schema, texts, relay: Uuid::new_v4() }
    }

    fn pool(&self) -> &PgPool {
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
        let record = "INSERT INTO idempotency_migrations (version) VALUES ($1)";
        sqlx::query(record).bind(version).execute(&self.pool).await.unwrap();
    }

    async fn newest(&self) -> AnyStore {
        AnyStore::operable(PostgresStore::new(self.pool.clone()).await.unwrap())
    }

    async fn claim(&self, request: &ClaimRequest) -> Option<Claim> {
        let mut connection = self.pool.acquire().await.unwrap();
        sqlx::raw_sql(self.texts.get("begin")).execute(&mut *connection).await.unwrap();
        let (key, half, other) = self.locks(request);
        for name in ["claim", "claim_again"] {
            let query = self.of(name, request).bind(key).bind(half).bind(other);
            let query = query.bind(request.fingerprint().to_bytes().to_vec()).bind(request.token().as_bytes().to_vec());
            let query = query.bind(RETENTION).bind("60000").bind("60").bind("10");
            let Some(row) = query.fetch_optional(&mut *connection).await.unwrap() else { continue };
            if let Some(place) = row.get("ctid") {
                return Some(Claim { connection, place });
            }
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.unwrap();
        None
    }

    async fn settle(&self, mut claim: Claim, request: &ClaimRequest, answer: &[u8]) {
        let settle = bound!(self.query("settle").bind(claim.place), request).bind(RETENTION).bind(answer.to_vec());
        let done = settle.execute(&mut *claim.connection).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
        sqlx::raw_sql("COMMIT").execute(&mut *claim.connection).await.unwrap();
    }

    async fn give_up(&self, mut claim: Claim, _: &ClaimRequest) {
        sqlx::raw_sql("ROLLBACK").execute(&mut *claim.connection).await.unwrap();
    }

    async fn answer(&self, request: &ClaimRequest) -> Option<Vec<u8>> {
        let row = self.of("peek", request).fetch_optional(&self.pool).await.unwrap();
        row.and_then(|row| seen(&row, request))
    }

    async fn forget(&self, request: &ClaimRequest) -> bool {
        let (key, ..) = self.locks(request);
        let forget = self.of("forget", request).bind(key).bind(request.token().as_bytes().to_vec()).bind(vec![1_i16]);
        forget.fetch_one(&self.pool).await.unwrap().get("changed")
    }

    async fn lease(&self, request: &ClaimRequest) -> bool {
        let ask = self.of("lease_ask", request).bind(request.fingerprint().to_bytes().to_vec());
        let ask = ask.bind(request.token().as_bytes().to_vec()).bind(true).bind(LEASE).bind(RETENTION);
        ask.fetch_one(&self.pool).await.unwrap().get::<Option<i64>, _>("granted").is_some()
    }

    async fn renew(&self, request: &ClaimRequest) -> bool {
        self.owned("lease_renew", request).bind(LEASE).execute(&self.pool).await.unwrap().rows_affected() == 1
    }

    async fn settle_lease(&self, request: &ClaimRequest, answer: &[u8]) -> bool {
        let settle = self.owned("lease_settle", request).bind(RETENTION).bind(answer.to_vec());
        settle.execute(&self.pool).await.unwrap().rows_affected() == 1
    }

    async fn abandon_lease(&self, request: &ClaimRequest) -> bool {
        let abandon = self.owned("lease_abandon", request).bind(vec![0_u8; 16]);
        abandon.execute(&self.pool).await.unwrap().rows_affected() == 1
    }

    async fn leased_answer(&self, request: &ClaimRequest) -> Option<Vec<u8>> {
        let ask = self.of("lease_ask", request).bind(request.fingerprint().to_bytes().to_vec());
        let ask = ask.bind(request.token().as_bytes().to_vec()).bind(true).bind(LEASE).bind(RETENTION);
        seen(&ask.fetch_one(&self.pool).await.unwrap(), request)
    }

    async fn accept(&self, id: &str, payload: &[u8]) -> bool {
        let parts = [CONSUMER, SOURCE, id].map(|part| part.as_bytes().to_vec());
        let token = Uuid::new_v4().into_bytes().to_vec();
        let named: Vec<&[u8]> = [self.schema.as_bytes()].into_iter().chain(parts.iter().map(Vec::as_slice)).collect();
        let lock = number(digest(b"idempotency/postgres-inbox/1\0", &named));
        let mut transaction = self.pool.begin().await.unwrap();
        let accept = parts.iter().fold(self.query("accept"), |query, part| query.bind(part.clone()));
        let accept = accept.bind(lock).bind(token.clone()).bind(of_payload(payload).to_vec()).bind(RETENTION);
        let row = accept.bind("60000").bind(true).fetch_one(&mut *transaction).await.unwrap();
        assert!(!row.get::<bool, _>("strict"));
        let Some(place) = row.get::<Option<String>, _>("accepted") else {
            if row.get("seen") {
                assert_eq!(row.get::<Vec<u8>, _>("digest"), of_payload(payload));
            }
            return false;
        };
        let confirm = parts.into_iter().fold(self.query("confirm"), Query::bind).bind(token).bind(RETENTION);
        assert_eq!(confirm.bind(place).execute(&mut *transaction).await.unwrap().rows_affected(), 1);
        transaction.commit().await.unwrap();
        true
    }

    async fn enqueue(&self, bucket: u8, payload: &str) {
        let insert = self.query("enqueue").bind(i16::from(bucket)).bind(Uuid::new_v4().to_string());
        let insert = insert.bind(DESTINATION).bind("t").bind(KEY).bind("kind").bind("/first").bind(None::<String>);
        let insert = insert.bind(payload.as_bytes().to_vec()).bind(None::<String>).bind(None::<String>);
        insert.bind(None::<String>).execute(&self.pool).await.unwrap();
    }

    async fn join(&self) -> bool {
        let join = self.query("join").bind("old").bind(self.relay.to_string()).bind(LEASE);
        assert!(!join.fetch_all(&self.pool).await.unwrap().is_empty());
        let take = self.query("take").bind(self.relay.to_string()).bind(64_i64);
        take.fetch_all(&self.pool).await.unwrap().len() == 64
    }

    async fn publish(&self, bucket: u8) -> Vec<String> {
        let bucket = i16::from(bucket);
        let poll = self.query("poll").bind(vec![bucket]).bind(vec![0_i64]).bind(vec![100_i64]);
        let rows = poll.fetch_all(&self.pool).await.unwrap();
        let delete = self.query("delete").bind(vec![bucket; rows.len()]);
        let delete = delete.bind(rows.iter().map(|row| row.get("seq")).collect::<Vec<i64>>());
        let delete = delete.bind(rows.iter().map(|row| row.get("id")).collect::<Vec<String>>());
        let deleted = delete.execute(&self.pool).await.unwrap().rows_affected();
        assert_eq!(deleted, rows.len() as u64);
        rows.iter().map(|row| String::from_utf8(row.get("payload")).unwrap()).collect()
    }

    async fn leave(&self) {
        let leave = self.query("leave").bind("old").bind(self.relay.to_string());
        leave.execute(&self.pool).await.unwrap();
    }
}

// What was applied somewhere is never changed.
#[test]
fn the_first_tables_are_the_first_migrations() {
    for (version, text) in (1..).zip(TABLES) {
        assert_eq!(PostgresStore::schema_sql(version, None).as_deref(), Some(&*text.replace("{schema}", "")));
    }
}

crate::rolling::on_each_version!(super::FirstPostgres);
