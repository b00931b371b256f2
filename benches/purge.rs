//! What a large table and a purge cost claims on Postgres: `cargo bench --bench purge -- 10000000` fills a table with so many
//! live rows (a million by default) and compares the latency of claims with that on an empty one; then it adds a tenth of that as
//! expired rows and compares claims with and without a purger at full load. Needs a server in `POSTGRES_URL`, for example by
//! `tests/run --with cargo bench --bench purge`. Its schema is dropped at the end.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark prints, and takes its server from the environment"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use idempotency::fingerprint::{Fingerprint, Profile};
use idempotency::purge::Purger;
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Claim, ClaimRequest, Kept, Settlement, Store, Verdict};
use idempotency::{Endpoint, Key, LookupKey, PostgresStore, ScopeId};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::task::JoinSet;

const AT_ONCE: usize = 4;
const TURN: Duration = Duration::from_millis(500);
const TURNS: usize = 24;

#[tokio::main]
async fn main() {
    let Ok(url) = std::env::var("POSTGRES_URL") else {
        println!("POSTGRES_URL is not set: nothing measured");
        return;
    };
    let rows: u64 = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let (empty, full) = (open(&url).await, open(&url).await);
    let begun = Instant::now();
    fill(&full.0, 0, rows, "1 day").await;
    run(&full.0, "VACUUM ANALYZE idempotency_keys").await;
    println!("{rows} live rows in {:.0} s", begun.elapsed().as_secs_f64());
    for (_, store) in [&empty, &full] {
        claims(store, Duration::from_secs(2)).await;
    }
    // In turns, so that whatever else the machine does meets both.
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        few.extend(claims(&empty.1, TURN).await);
        many.extend(claims(&full.1, TURN).await);
    }
    told("on an empty table", &mut few, &format!("on {rows} rows"), &mut many);
    fill(&full.0, 2 * rows, rows / 10, "-1 second").await;
    let (mut alone, mut beside, mut purged, mut more) = (Vec::new(), Vec::new(), 0, true);
    for _ in 0..TURNS {
        alone.extend(claims(&full.1, TURN).await);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let purger = Purger::new().keys("keys", full.1.clone()).interval(Duration::from_millis(1));
        let purging = tokio::spawn(purger.run(async { drop(stopped.await) }));
        beside.extend(claims(&full.1, TURN).await);
        drop(stop);
        let done = purging.await.unwrap();
        purged += done.rows;
        more &= done.more || purged < rows / 10;
    }
    let busy = if more { "busy to the end" } else { "done before" };
    told("alone", &mut alone, &format!("beside a purge of {purged} rows ({busy})"), &mut beside);
    for (pool, _) in [&empty, &full] {
        let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(pool).await.unwrap();
        run(pool, &format!("DROP SCHEMA {schema} CASCADE")).await;
    }
}

async fn open(url: &str) -> (PgPool, PostgresStore) {
    let options: PgConnectOptions = url.parse().unwrap();
    let schema = format!("bench_{}", uuid::Uuid::new_v4().simple());
    let options = options.options([("search_path", schema.as_str())]);
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
    run(&pool, &format!("CREATE SCHEMA {schema}")).await;
    let store = PostgresStore::new(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    (pool, store)
}

/// Rows as requests leave them: keys in no order, an answer of 200 bytes.
async fn fill(pool: &PgPool, from: u64, rows: u64, expires_in: &str) {
    let mut next = from;
    while next < from + rows {
        let to = (next + 500_000).min(from + rows);
        let text = format!(
            "INSERT INTO idempotency_keys
                (scope, id_key, endpoint, state, fingerprint, token, accepted_at, settled_at, expires_at, answer)
             SELECT 'tenant-' || n % 100, gen_random_uuid()::text, 'POST /payments', 1, decode(repeat('ab', 40), 'hex'),
                decode(md5(n::text), 'hex'), now(), now(), now() + interval '{expires_in}' + n * interval '1 microsecond',
                decode(repeat('00', 200), 'hex')
             FROM generate_series({next}::bigint, {to}::bigint - 1) AS n"
        );
        run(
            pool,
            &text.replace(
                "+ n * interval",
                if expires_in.starts_with('-') { "- n % 1000 * interval" } else { "+ n * interval" },
            ),
        )
        .await;
        next = to;
    }
}

async fn run(pool: &PgPool, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(pool).await.unwrap();
}

/// The times of first requests, from claim to commit.
async fn claims(store: &PostgresStore, round: Duration) -> Vec<Duration> {
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let store = store.clone();
        tasks.spawn(async move {
            let (until, mut took) = (Instant::now() + round, Vec::new());
            while Instant::now() < until {
                let begun = Instant::now();
                first(&store).await;
                took.push(begun.elapsed());
            }
            took
        });
    }
    tasks.join_all().await.concat()
}

fn told(one: &str, times: &mut [Duration], other: &str, others: &mut [Duration]) {
    let [one_median, one_p99] = quantiles(times);
    let [other_median, other_p99] = quantiles(others);
    println!(
        "first request {one}: median {one_median:?}, p99 {one_p99:?}; {other}: {other_median:?}, {other_p99:?}; ratios {:.2}, {:.2}",
        ratio(other_median, one_median),
        ratio(other_p99, one_p99)
    );
}

fn quantiles(times: &mut [Duration]) -> [Duration; 2] {
    times.sort_unstable();
    [times[times.len() / 2], times[times.len() * 99 / 100]]
}

async fn first(store: &PostgresStore) {
    let key = Key::new(&uuid::Uuid::new_v4().to_string()).unwrap();
    let lookup = LookupKey::new(ScopeId::new("tenant-1").unwrap(), key, Endpoint::named("POST /payments"));
    let fingerprint = Fingerprint::new(Profile::from_bytes([1; 8]), [1; 32]);
    let request = ClaimRequest::new(lookup, fingerprint, Duration::from_secs(3600));
    let Verdict::Claimed(claim) = store.claim(&request).await.unwrap() else { unreachable!("a new key") };
    let answer = Answer {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body: AnswerBody::Kept(Bytes::from_static(&[b'x'; 200])),
        trailers: None,
    };
    let kept = Kept { answer, retention: Duration::from_secs(3600) };
    claim.settle(Settlement::Commit(kept)).await.unwrap();
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
