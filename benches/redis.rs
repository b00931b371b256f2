//! What a Redis store costs, without HTTP: first requests a second at 16 at once, and the latency of a replay. Needs a
//! server in `REDIS_URL`, for example by `tests/run --with cargo bench --features redis --bench redis`.
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
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Claim, ClaimRequest, Kept, RedisStore, Settlement, Store, Verdict};
use idempotency::{Endpoint, Key, LookupKey, ScopeId};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use tokio::task::JoinSet;

const AT_ONCE: usize = 16;
const ROUND: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    let Ok(url) = std::env::var("REDIS_URL") else {
        println!("REDIS_URL is not set: nothing measured");
        return;
    };
    let store = RedisStore::single(url.as_str()).prefix(format!("bench-{}", uuid::Uuid::new_v4())).build().unwrap();
    let raw = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let (mut firsts, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let store = store.clone();
        firsts.push(per_second(move |key| first(store.clone(), key)).await);
        let raw = raw.clone();
        bare.push(per_second(move |key| set_and_set(raw.clone(), key)).await);
    }
    let (firsts, bare) = (median(firsts), median(bare));
    println!(
        "first requests, {AT_ONCE} at once: {firsts:.0}/s; two plain writes instead: {bare:.0}/s; ratio {:.2}",
        firsts / bare
    );
    for (name, size) in [("small", 200), ("64 KiB, in the claim's answer", 65_000), ("8 MiB, by a read more", 8 << 20)]
    {
        let asked = asked(name);
        let Verdict::Claimed(claim) = store.claim(&asked).await.unwrap() else { panic!("not free") };
        claim.settle(Settlement::Commit(kept(size))).await.unwrap();
        let mut times = Vec::new();
        for _ in 0..if size > 1 << 20 { 50 } else { 2000 } {
            let start = Instant::now();
            let Verdict::Replay(_) = store.claim(&asked.again()).await.unwrap() else { panic!("no replay") };
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        println!("replay, {name}: p50 {:.0} µs, p99 {:.0} µs", times[times.len() / 2], times[times.len() * 99 / 100]);
    }
}

/// How many operations a second 16 tasks get done, each one after the other.
async fn per_second<F, R>(operation: F) -> f64
where
    F: Fn(String) -> R + Clone + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let operation = operation.clone();
        tasks.spawn(async move {
            let mut done = 0_u32;
            while start.elapsed() < ROUND {
                operation(uuid::Uuid::new_v4().to_string()).await;
                done += 1;
            }
            done
        });
    }
    let done: u32 = tasks.join_all().await.into_iter().sum();
    f64::from(done) / start.elapsed().as_secs_f64()
}

async fn first(store: RedisStore, key: String) {
    let Verdict::Claimed(claim) = store.claim(&asked(&key)).await.unwrap() else { panic!("not free") };
    claim.settle(Settlement::Commit(kept(200))).await.unwrap();
}

/// What it would take to write twice without any promise.
async fn set_and_set(mut connection: MultiplexedConnection, key: String) {
    for _ in 0..2 {
        let mut cmd = redis::cmd("SET");
        cmd.arg(&key).arg([7_u8; 200].as_slice()).arg("PX").arg(60_000);
        connection.req_packed_command(&cmd).await.unwrap();
    }
}

fn asked(key: &str) -> ClaimRequest {
    let lookup = LookupKey::new(ScopeId::shared(), Key::new(key).unwrap(), Endpoint::named("POST /bench"));
    ClaimRequest::new(lookup, Fingerprint::new(Profile::from_bytes([1; 8]), [1; 32]), Duration::from_secs(60))
}

fn kept(size: usize) -> Kept {
    let answer = Answer {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body: AnswerBody::Kept(Bytes::from(vec![7; size])),
        trailers: None,
    };
    Kept { answer, retention: Duration::from_secs(60) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
