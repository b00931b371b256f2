//! How keys stand.

use serde_json::{Value, json};

use super::{code, json, paid, text, tool};
use crate::service::Engine;
use crate::support::service::Client;

/// A statement of the host's on its database.
pub(super) async fn run(url: &str, sql: impl Into<String>) {
    let sql = sqlx::AssertSqlSafe(sql.into());
    match url.split_once(':').unwrap().0 {
        "sqlite" => {
            let pool = sqlx::SqlitePool::connect(url).await.unwrap();
            sqlx::raw_sql(sql).execute(&pool).await.unwrap();
            pool.close().await;
        }
        "postgres" => {
            let pool = sqlx::PgPool::connect(url).await.unwrap();
            sqlx::raw_sql(sql).execute(&pool).await.unwrap();
            pool.close().await;
        }
        _ => {
            let pool = sqlx::MySqlPool::connect(url).await.unwrap();
            sqlx::raw_sql(sql).execute(&pool).await.unwrap();
            pool.close().await;
        }
    }
}

fn exactly(number: u64) -> Value {
    json!({ "count": number, "is": "exact" })
}

fn stats(url: &str, more: &[&str]) -> Value {
    let output = tool(url, &[&["--json", "stats"], more].concat());
    assert_eq!(code(&output), 0, "{}", text(&output));
    json(&output)
}

/// Waits until the numbers are as they should be.
async fn until(url: &str, more: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..100 {
        let seen = stats(url, more);
        if holds(&seen) {
            return seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{}", stats(url, more));
}

/// What is completed, what runs, what has expired.
async fn records_are_counted(engine: Engine) {
    let url = paid(&engine).await;
    let counted = stats(&url, &[]);
    for (name, number) in [("records", 1), ("completed", 1), ("expired", 0), ("running", 0), ("orphaned", 0)] {
        assert_eq!(counted[name], exactly(number), "{name} of {counted}");
    }
    assert_eq!(counted["overdue_seconds"], Value::Null);
    // Two more run.
    let service = engine.start("127.0.0.1:0", 10);
    let slow = |key: &'static str| {
        let address = service.address.clone();
        tokio::spawn(async move { Client::new().pay(&address, key, 1250, "slow:4000").await })
    };
    // One on SQLite, which has one writer.
    let running = if url.starts_with("sqlite") { vec![slow("s1")] } else { vec![slow("s1"), slow("s2")] };
    let number = u64::try_from(running.len()).unwrap();
    let seen = until(&url, &[], |seen| seen["running"] == exactly(number)).await;
    assert_eq!(seen["completed"], exactly(1), "{seen}");
    for payment in running {
        assert_eq!(payment.await.unwrap().unwrap().status, 201);
    }
    until(&url, &[], |seen| seen["running"] == exactly(0) && seen["completed"] == exactly(number + 1)).await;
    drop(service);
    // One is orphaned, and all others have expired.
    run(&url, "UPDATE idempotency_keys SET state = 2 WHERE id_key = 'k1'").await;
    run(&url, "UPDATE idempotency_keys SET expires_at = accepted_at WHERE id_key <> 'k1'").await;
    let seen = stats(&url, &["--exact"]);
    assert_eq!((&seen["orphaned"], &seen["expired"]), (&exactly(1), &exactly(number)), "{seen}");
    assert_eq!((&seen["completed"], &seen["records"]), (&exactly(0), &exactly(number + 1)), "{seen}");
    assert!(seen["overdue_seconds"].as_f64().unwrap() > 0.0, "{seen}");
    let human = tool(&url, &["stats"]);
    let human = (code(&human), text(&human));
    assert_eq!(human.0, 0, "{}", human.1);
    assert!(human.1.contains("orphaned   1\n") && human.1.contains(", the longest for"), "{}", human.1);
    // The orphan is freed by hand.
    let released = tool(&url, &["--scope", "alice", "--yes", "release", "k1"]);
    assert_eq!((code(&released), &*text(&released)), (0, "released\n"));
    assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k1"])), 1);
    assert_eq!(stats(&url, &[])["records"], exactly(number));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_counted_on_sqlite() {
    records_are_counted(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_counted_on_postgres() {
    records_are_counted(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_counted_on_mariadb() {
    records_are_counted(Engine::mysql().await).await;
}

/// A lease that runs, and one that has stopped.
async fn leases_are_counted(engine: Engine) {
    let engine = engine.keys("lease");
    let service = engine.start("127.0.0.1:0", 10);
    assert_eq!(engine.client().pay(&service.address, "k1", 1250, "ok").await.unwrap().status, 201);
    let (address, client) = (service.address.clone(), engine.client());
    tokio::spawn(async move { client.pay(&address, "slow", 1250, "slow:30000").await });
    let url = engine.url();
    let leases = ["--leases"];
    let seen = until(&url, &leases, |seen| seen["running"] == exactly(1)).await;
    assert_eq!((&seen["completed"], &seen["records"], &seen["lapsed"]), (&exactly(1), &exactly(2), &exactly(0)));
    service.kill();
    let seen = until(&url, &leases, |seen| seen["lapsed"] == exactly(1)).await;
    assert_eq!((&seen["running"], &seen["unknown"]), (&exactly(0), &exactly(0)), "{seen}");
    let held = if url.starts_with("postgres") { "true" } else { "1" };
    run(&url, format!("UPDATE idempotency_leases SET held = {held} WHERE state = 0")).await;
    let seen = stats(&url, &["--leases", "--exact"]);
    assert_eq!((&seen["lapsed"], &seen["unknown"]), (&exactly(0), &exactly(1)), "{seen}");
    run(&url, "UPDATE idempotency_leases SET expires_at = accepted_at").await;
    let seen = stats(&url, &leases);
    assert_eq!((&seen["unknown"], &seen["completed"], &seen["expired"]), (&exactly(0), &exactly(0), &exactly(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_counted_on_sqlite() {
    leases_are_counted(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_counted_on_postgres() {
    leases_are_counted(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_counted_on_mariadb() {
    leases_are_counted(Engine::mysql().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_on_redis_are_counted() {
    let _calm = crate::support::redis::calm().await;
    let redis = std::env::var("REDIS_URL").unwrap();
    let prefix = format!("stats-{}", uuid::Uuid::new_v4());
    let store = idempotency::RedisStore::single(redis.as_str()).prefix(&prefix).build().unwrap();
    for key in 0..3 {
        use idempotency::testing::store::{answer, completed, request};
        completed(&store, &request(&format!("k{key}"), 1), answer("done")).await;
    }
    let verdict = {
        use idempotency::store::Store;
        store.claim(&idempotency::testing::store::request("running", 1)).await.unwrap()
    };
    for more in [&[][..], &["--exact"]] {
        let seen = stats("", &[&["--store", &redis, "--prefix", &prefix], more].concat());
        for (name, number) in [("records", 4), ("completed", 3), ("running", 1), ("lapsed", 0), ("expired", 0)] {
            assert_eq!(seen[name], exactly(number), "{name} of {seen}");
        }
    }
    drop(verdict);
}

/// So many completed records, of which half have expired.
pub(super) fn many(url: &str, number: u32) -> String {
    let columns = "INSERT INTO idempotency_keys \
        (scope, id_key, endpoint, state, fingerprint, token, accepted_at, expires_at, settled_at)";
    match url.split_once(':').unwrap().0 {
        "sqlite" => format!(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {number}) {columns} \
             SELECT 's', 'k' || n, '', 1, zeroblob(40), zeroblob(16), 1, \
                CASE WHEN n % 2 = 0 THEN 2 ELSE 9000000000000000 END, 1 FROM n"
        ),
        "postgres" => format!(
            "{columns} SELECT 's', 'k' || n, '', 1, decode(repeat('00', 40), 'hex'), decode(repeat('00', 16), 'hex'), \
                now(), now() + CASE WHEN n % 2 = 0 THEN interval '-1 h' ELSE interval '1 h' END, now() \
             FROM generate_series(1, {number}) AS n; ANALYZE idempotency_keys"
        ),
        _ => format!(
            "{columns} SELECT 's', CONCAT('k', seq), '', 1, REPEAT(CHAR(0), 40), REPEAT(CHAR(0), 16), UTC_TIMESTAMP(6), \
                UTC_TIMESTAMP(6) + INTERVAL IF(seq % 2 = 0, -1, 1) HOUR, UTC_TIMESTAMP(6) \
             FROM seq_1_to_{number}; ANALYZE TABLE idempotency_keys"
        ),
    }
}

// What a count is worth is said: it goes no further than 10,000 rows unless all are wanted.
async fn a_large_table_is_estimated(engine: Engine) {
    let url = engine.url();
    assert_eq!(code(&tool(&url, &["--yes", "migrate"])), 0);
    run(&url, many(&url, 50_000)).await;
    let seen = stats(&url, &[]);
    assert_eq!(seen["expired"], json!({ "count": 10_000, "is": "at_least" }), "{seen}");
    assert_eq!((&seen["completed"], &seen["orphaned"]), (&Value::Null, &Value::Null), "{seen}");
    if url.starts_with("sqlite") {
        assert_eq!(seen["records"], json!({ "count": 10_000, "is": "at_least" }));
    } else {
        assert_eq!(seen["records"]["is"], "estimate", "{seen}");
        assert!((30_000..80_000).contains(&seen["records"]["count"].as_u64().unwrap()), "{seen}");
    }
    let human = text(&tool(&url, &["stats"]));
    assert!(human.contains("completed  not counted") && human.contains("expired    10000 or more"), "{human}");
    let seen = stats(&url, &["--exact"]);
    assert_eq!((&seen["records"], &seen["expired"]), (&exactly(50_000), &exactly(25_000)), "{seen}");
    assert_eq!(seen["completed"], exactly(25_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_table_is_estimated_on_sqlite() {
    a_large_table_is_estimated(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_table_is_estimated_on_mariadb() {
    a_large_table_is_estimated(Engine::mysql().await).await;
}

// The server itself says how many rows were read.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_table_is_estimated_on_postgres_and_not_read() {
    let engine = Engine::postgres().await;
    let url = engine.url();
    assert_eq!(code(&tool(&url, &["--yes", "migrate"])), 0);
    run(&url, many(&url, 200_000)).await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let read = async || -> i64 {
        // A session reports what it has read when it ends, or some time later.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        sqlx::query_scalar(
            "SELECT seq_tup_read + idx_tup_fetch + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes \
                WHERE relname = 'idempotency_keys')::int8 \
             FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'",
        )
        .fetch_one(&pool)
        .await
        .unwrap()
    };
    let before = read().await;
    assert_eq!(stats(&url, &[])["records"]["is"], "estimate");
    let bounded = read().await - before;
    assert_eq!(stats(&url, &["--exact"])["records"], exactly(200_000));
    let exact = read().await - before - bounded;
    // Three counts at most; an index may be counted with its table.
    assert!((1..60_000).contains(&bounded), "{bounded} rows were read");
    assert!(exact >= 200_000, "{exact} rows were read");
}
