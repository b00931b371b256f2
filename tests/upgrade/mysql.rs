//! The first version on MariaDB.

use idempotency::MySqlStore;
use idempotency::store::{AnyStore, ClaimRequest};
use sqlx::mysql::MySqlArguments;
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{MySql, MySqlPool, Row};
use uuid::Uuid;

use crate::first::{CONSUMER, DESTINATION, First, KEY, LEASE, RETENTION, SOURCE, Texts, expand, of_payload};
use crate::mysql_server;

const TABLES: [&str; 4] = [
    include_str!("first/mysql/0001_keys.sql"),
    include_str!("first/mysql/0002_leases.sql"),
    include_str!("first/mysql/0003_inbox.sql"),
    include_str!("first/mysql/0004_outbox.sql"),
];
const HISTORY: &str = include_str!("first/mysql/history.sql");

pub struct FirstMySql {
    pool: MySqlPool,
    texts: Texts,
    relay: Uuid,
}

type Bound = Query<'static, MySql, MySqlArguments>;

/// In bytes: as text they would be compared by a collation.
fn parts(query: Bound, request: &ClaimRequest) -> Bound {
    let lookup = request.lookup();
    let parts = [lookup.scope().as_str(), lookup.key().as_str(), lookup.endpoint().as_str()];
    parts.into_iter().fold(query, |query, part| query.bind(part.as_bytes().to_vec()))
}

impl FirstMySql {
    fn query(&self, name: &str) -> Bound {
        sqlx::query(self.texts.get(name))
    }

    async fn changed(&self, query: Bound) -> bool {
        query.execute(&self.pool).await.unwrap().rows_affected() == 1
    }

    async fn stored(&self, name: &str, request: &ClaimRequest) -> Option<Vec<u8>> {
        let row = parts(self.query(name), request).fetch_optional(&self.pool).await.unwrap()?;
        let same = row.get::<Vec<u8>, _>("fingerprint") == request.fingerprint().to_bytes();
        (row.get::<i16, _>("state") == 1 && same && row.get::<i64, _>("expired") == 0).then(|| row.get("answer"))
    }
}

impl First for FirstMySql {
    type DB = MySql;
    type Claim = PoolConnection<MySql>;
    const SHARES: bool = true;

    async fn empty() -> Self {
        let pool = mysql_server::pool_of(20).await;
        Self { pool, texts: Texts::of(include_str!("first/mysql/statements.sql")), relay: Uuid::new_v4() }
    }

    fn pool(&self) -> &MySqlPool {
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
        let record = "INSERT INTO idempotency_migrations (version, applied_at) VALUES (?, UTC_TIMESTAMP(6))";
        sqlx::query(record).bind(version).execute(&self.pool).await.unwrap();
    }

    async fn newest(&self) -> AnyStore {
        AnyStore::operable(MySqlStore::new(self.pool.clone()).await.unwrap())
    }

    async fn claim(&self, request: &ClaimRequest) -> Option<PoolConnection<MySql>> {
        let mut connection = self.pool.acquire().await.unwrap();
        sqlx::raw_sql(self.texts.get("begin")).execute(&mut *connection).await.unwrap();
        let claim = parts(self.query("claim"), request).bind(request.fingerprint().to_bytes().to_vec());
        let claim = claim.bind(request.token().as_bytes().to_vec()).bind(RETENTION);
        match claim.fetch_one(&mut *connection).await {
            Ok(row) if row.get::<Vec<u8>, _>("token") == request.token().as_bytes() => return Some(connection),
            Ok(_) => {}
            Err(error) => {
                let number = error.as_database_error().and_then(|error| error.code().map(String::from));
                assert_eq!(number.as_deref(), Some("HY000"), "{error}");
            }
        }
        sqlx::raw_sql(self.texts.get("leave")).execute(&mut *connection).await.unwrap();
        None
    }

    async fn settle(&self, mut claim: PoolConnection<MySql>, request: &ClaimRequest, answer: &[u8]) {
        let settle = parts(self.query("settle").bind(answer.to_vec()).bind(RETENTION), request);
        let settle = settle.bind(request.token().as_bytes().to_vec()).bind(b"mark".to_vec());
        assert_eq!(settle.fetch_one(&mut *claim).await.unwrap().get::<Vec<u8>, _>("mark"), b"mark");
    }

    async fn give_up(&self, mut claim: PoolConnection<MySql>, _: &ClaimRequest) {
        sqlx::raw_sql(self.texts.get("leave")).execute(&mut *claim).await.unwrap();
    }

    async fn answer(&self, request: &ClaimRequest) -> Option<Vec<u8>> {
        self.stored("find", request).await
    }

    async fn forget(&self, request: &ClaimRequest) -> bool {
        self.changed(parts(self.query("forget"), request).bind(request.token().as_bytes().to_vec())).await
    }

    async fn lease(&self, request: &ClaimRequest) -> bool {
        if parts(self.query("lease_look"), request).fetch_optional(&self.pool).await.unwrap().is_some() {
            return false;
        }
        let insert = parts(self.query("lease_insert"), request).bind(request.fingerprint().to_bytes().to_vec());
        let insert = insert.bind(request.token().as_bytes().to_vec()).bind(true).bind(LEASE).bind(RETENTION);
        self.changed(insert).await
    }

    async fn renew(&self, request: &ClaimRequest) -> bool {
        let renew = parts(self.query("lease_renew").bind(LEASE).bind(LEASE), request);
        self.changed(renew.bind(request.token().as_bytes().to_vec())).await
    }

    async fn settle_lease(&self, request: &ClaimRequest, answer: &[u8]) -> bool {
        let settle = parts(self.query("lease_settle").bind(answer.to_vec()).bind(RETENTION), request);
        self.changed(settle.bind(request.token().as_bytes().to_vec())).await
    }

    async fn abandon_lease(&self, request: &ClaimRequest) -> bool {
        let abandon = parts(self.query("lease_abandon").bind(vec![0_u8; 16]), request);
        self.changed(abandon.bind(request.token().as_bytes().to_vec())).await
    }

    async fn leased_answer(&self, request: &ClaimRequest) -> Option<Vec<u8>> {
        self.stored("lease_look", request).await
    }

    async fn accept(&self, id: &str, payload: &[u8]) -> bool {
        let at = |query| {
            [CONSUMER, SOURCE, id].iter().fold(query, |query: Bound, part| query.bind(part.as_bytes().to_vec()))
        };
        let token = Uuid::new_v4().into_bytes().to_vec();
        let mut transaction = self.pool.begin().await.unwrap();
        let accept = at(self.query("accept")).bind(token.clone()).bind(of_payload(payload).to_vec()).bind(RETENTION);
        if let Err(error) = accept.execute(&mut *transaction).await {
            assert!(error.as_database_error().unwrap().is_unique_violation(), "{error}");
            let seen = at(self.query("look")).fetch_one(&mut *transaction).await.unwrap();
            assert_eq!(seen.get::<Vec<u8>, _>("digest"), of_payload(payload));
            return false;
        }
        let confirm = at(self.query("confirm").bind(RETENTION)).bind(token);
        assert_eq!(confirm.execute(&mut *transaction).await.unwrap().rows_affected(), 1);
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
        let token = self.relay.as_bytes().to_vec();
        let join = self.query("join").bind(b"old".to_vec()).bind(token.clone()).bind(LEASE);
        join.execute(&self.pool).await.unwrap();
        let live = self.query("live").fetch_all(&self.pool).await.unwrap();
        let live: Vec<Vec<u8>> = live.iter().map(|row| row.get("token")).collect();
        assert!(live.contains(&token));
        let buckets = self.query("buckets").fetch_all(&self.pool).await.unwrap();
        let free = buckets.iter().filter_map(|row| {
            let owner: Option<Vec<u8>> = row.get("owner");
            let (bucket, epoch): (i16, i64) = (row.get("bucket"), row.get("epoch"));
            let is_free = owner.as_ref().is_none_or(|owner| !live.contains(owner));
            let owner = owner.map(|owner| Uuid::from_slice(&owner).unwrap().simple().to_string());
            is_free.then(|| serde_json::json!([bucket, epoch, owner]))
        });
        let take = self.query("take").bind(serde_json::Value::Array(free.collect()).to_string()).bind(token);
        take.execute(&self.pool).await.unwrap().rows_affected() == 64
    }

    async fn publish(&self, bucket: u8) -> Vec<String> {
        let rows = self.query("poll").bind(bucket).bind(0_i64).bind(100_u32).fetch_all(&self.pool).await.unwrap();
        let acked = rows.iter().map(|row| {
            let id: String = row.try_get_unchecked("id").unwrap();
            serde_json::json!([bucket, row.get::<i64, _>("seq"), id])
        });
        let delete = self.query("delete").bind(serde_json::Value::Array(acked.collect()).to_string());
        assert_eq!(delete.execute(&self.pool).await.unwrap().rows_affected(), rows.len() as u64);
        rows.iter().map(|row| String::from_utf8(row.get("payload")).unwrap()).collect()
    }

    /// It dies and its member row is forgotten; what it owned is free then.
    async fn leave(&self) {
        let leave = "DELETE FROM idempotency_outbox_relay WHERE name = 'old'";
        sqlx::query(leave).execute(&self.pool).await.unwrap();
    }
}

// What was applied somewhere is never changed.
#[test]
fn the_first_tables_are_the_first_migrations() {
    for (version, text) in (1..).zip(TABLES) {
        assert_eq!(MySqlStore::schema_sql(version, None).as_deref(), Some(&*text.replace("{schema}", "")));
    }
}

crate::rolling::on_each_version!(super::FirstMySql);
