//! The table, and whose clock it goes by (S13, S14, cases L17 and L18).

use std::time::Duration;

use idempotency::store::{Claim, Kept, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{Endpoint, ErrorKind, Key, LookupKey, PostgresStore, ScopeId};
use sqlx::{PgPool, Row};

use crate::support::postgres::{new_schema, options, pool_of, pool_on, store_on};

fn kept(retention: Duration) -> Kept {
    Kept { answer: answer("done"), retention }
}

async fn one<T>(pool: &PgPool, text: &'static str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::raw_sql(text).fetch_one(pool).await.unwrap().get(0)
}

// S13: the clock goes on within the transaction, where `now()` would stand still at its BEGIN.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_goes_on_between_claim_and_settlement() {
    let pool = pool_of(2).await;
    let store = store_on(&pool).await;
    let Verdict::Claimed(claim) = store.claim(&request("slow", 1)).await.unwrap() else { panic!("not free") };
    tokio::time::sleep(Duration::from_millis(150)).await;
    claim.settle(Settlement::Commit(kept(Duration::from_secs(60)))).await.unwrap();
    let took: f64 =
        one(&pool, "SELECT extract(epoch FROM settled_at - accepted_at)::float8 FROM idempotency_keys").await;
    assert!((0.15..10.0).contains(&took), "{took} s between claim and settlement");
    // Retention counts from the acceptance, and ends a minute after the settlement at the earliest.
    let least: f64 =
        one(&pool, "SELECT extract(epoch FROM expires_at - settled_at)::float8 FROM idempotency_keys").await;
    assert!((60.0..60.01).contains(&least), "{least} s");
}

/// A server whose clock stands `shift` seconds from this machine's, and can be turned: the search path leads to a
/// `clock_timestamp` of our own before the real one.
async fn on_a_shifted_clock(shift: i64) -> (PgPool, PgPool) {
    let (schema, _) = new_schema().await;
    let direct = pool_on(options().options([("search_path", schema.as_str())]), 1).await;
    let text = format!(
        "CREATE TABLE {schema}.shift AS SELECT {shift}::int8 AS seconds;
         CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
             $$ SELECT pg_catalog.clock_timestamp() + seconds * interval '1 second' FROM {schema}.shift $$"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&direct).await.unwrap();
    let pool = pool_on(options().options([("search_path", format!("{schema},pg_catalog"))]), 4).await;
    (pool, direct)
}

// S13, cases L17 and L18: the service's own clock enters nothing. Years before or after it, claims, replays, retention
// and purges go by the server's clock alone.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_servers_clock_counts() {
    const YEARS: i64 = 10 * 365 * 24 * 3600;
    for shift in [-YEARS, YEARS] {
        let (pool, direct) = on_a_shifted_clock(shift).await;
        let store = store_on(&pool).await;
        completed(&store, &request("skewed", 1), answer("done")).await;
        let Verdict::Claimed(claim) = store.claim(&request("refused", 1)).await.unwrap() else { panic!("not free") };
        claim.settle(Settlement::Refuse(kept(Duration::from_secs(3600)))).await.unwrap();
        let text = "SELECT max(abs(extract(epoch FROM t - pg_catalog.clock_timestamp()) - seconds))::float8 FROM shift,
             idempotency_keys CROSS JOIN LATERAL (VALUES (accepted_at), (settled_at), (expires_at - interval '1 hour')) AS v(t)";
        let off: f64 = one(&direct, text).await;
        assert!(off < 60.0, "some time in a row is {off} s from the server's clock");
        let asked = async |key: &str| store.claim(&request(key, 1)).await.unwrap();
        for key in ["skewed", "refused"] {
            assert!(matches!(asked(key).await, Verdict::Replay(_)), "{shift}: {key}");
        }
        assert_eq!(idempotency::store::Purge::purge(&store, 10).await.unwrap(), 0, "{shift}: purged too early");
        // An hour later by the server's clock, and at once by ours.
        sqlx::raw_sql("UPDATE shift SET seconds = seconds + 3601").execute(&direct).await.unwrap();
        let taken = asked("skewed").await;
        assert!(matches!(taken, Verdict::Claimed(_)), "{shift}: no expiry");
        drop(taken);
        let mut purged = 0;
        // The dropped claim holds its row until its rollback has arrived.
        for _ in 0..100 {
            purged += idempotency::store::Purge::purge(&store, 10).await.unwrap();
            if purged == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(purged, 2, "{shift}");
    }
}

// S13, S14: the types that keep bytes bytes, one unique key of three columns, and nothing that ties the table to another.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_keeps_bytes_and_stands_alone() {
    let pool = pool_of(1).await;
    store_on(&pool).await;
    let columns = sqlx::raw_sql(
        "SELECT a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod) || coalesce(' ' || c.collname, '')
         FROM pg_attribute AS a LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
         WHERE a.attrelid = 'idempotency_keys'::regclass AND a.attnum > 0 ORDER BY a.attnum",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let columns: Vec<String> = columns.iter().map(|row| row.get(0)).collect();
    for expected in
        ["scope text C", "id_key text C", "endpoint text C", "fingerprint bytea", "token bytea", "answer bytea"]
    {
        assert!(columns.iter().any(|column| column == expected), "{expected}: {columns:?}");
    }
    assert!(!columns.iter().any(|column| column.contains("json")), "{columns:?}");
    let constraints = sqlx::raw_sql(
        "SELECT contype::text || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
         WHERE conrelid = 'idempotency_keys'::regclass AND contype <> 'c' AND contype <> 'n'
         UNION ALL SELECT 'i ' || indexrelid::regclass::text FROM pg_index
         WHERE indrelid = 'idempotency_keys'::regclass AND indisunique AND NOT indisprimary",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let constraints: Vec<String> = constraints.iter().map(|row| row.get(0)).collect();
    assert_eq!(constraints, ["p PRIMARY KEY (scope, id_key, endpoint)"], "case K14, and no foreign key");
}

// S14: where the endpoint is left out it is the empty text, and one key is one row.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_left_out_is_empty() {
    let pool = pool_of(2).await;
    let store = store_on(&pool).await;
    let lookup = LookupKey::new(ScopeId::shared(), Key::new("k").unwrap(), Endpoint::none());
    let fingerprint = *request("k", 1).fingerprint();
    let asked = idempotency::store::ClaimRequest::new(lookup, fingerprint, Duration::from_secs(60));
    completed(&store, &asked, answer("done")).await;
    assert_eq!(one::<String>(&pool, "SELECT endpoint FROM idempotency_keys").await, "");
    assert!(matches!(store.claim(&asked.again()).await.unwrap(), Verdict::Replay(_)));
}

// S14: the shape can be spread: hash partitions by scope, as a host's own migration would make them.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_can_be_partitioned_by_scope() {
    let pool = pool_of(4).await;
    store_on(&pool).await;
    let text = "ALTER TABLE idempotency_keys RENAME TO plain;
        CREATE TABLE idempotency_keys (LIKE plain INCLUDING ALL) PARTITION BY HASH (scope);
        CREATE TABLE part_0 PARTITION OF idempotency_keys FOR VALUES WITH (MODULUS 3, REMAINDER 0);
        CREATE TABLE part_1 PARTITION OF idempotency_keys FOR VALUES WITH (MODULUS 3, REMAINDER 1);
        CREATE TABLE part_2 PARTITION OF idempotency_keys FOR VALUES WITH (MODULUS 3, REMAINDER 2);
        DROP TABLE plain";
    sqlx::raw_sql(text).execute(&pool).await.unwrap();
    let store = PostgresStore::new(pool.clone()).await.unwrap();
    let asked = |scope: u32, body: u8| {
        let scope = ScopeId::new(&format!("scope {scope}")).unwrap();
        let lookup = LookupKey::new(scope, Key::new("k").unwrap(), Endpoint::named("e"));
        idempotency::store::ClaimRequest::new(lookup, *request("k", body).fingerprint(), Duration::from_secs(60))
    };
    for scope in 0..20 {
        let Verdict::Claimed(claim) = store.claim(&asked(scope, 1)).await.unwrap() else { panic!("not free") };
        assert!(matches!(store.claim(&asked(scope, 1)).await.unwrap(), Verdict::InProgress { .. }));
        assert!(matches!(store.claim(&asked(scope, 2)).await.unwrap(), Verdict::Mismatch));
        let kept = kept(Duration::from_secs(60));
        let settlement = if scope % 2 == 0 { Settlement::Commit(kept) } else { Settlement::Refuse(kept) };
        claim.settle(settlement).await.unwrap();
        assert!(matches!(store.claim(&asked(scope, 1)).await.unwrap(), Verdict::Replay(_)));
    }
    let used: i64 = one(&pool, "SELECT count(DISTINCT tableoid) FROM idempotency_keys").await;
    assert_eq!(used, 3);
}

// S14: a replica is said when the store is built, not at the first claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_said_at_start() {
    let (schema, _) = new_schema().await;
    let direct = pool_on(options(), 1).await;
    // What a server in recovery says of itself.
    let text = format!("CREATE FUNCTION {schema}.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&direct).await.unwrap();
    let pool = pool_on(options().options([("search_path", format!("{schema},pg_catalog"))]), 1).await;
    let error = PostgresStore::new(pool).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("replica"));
}
