//! Sixty-four sessions on fresh keys and on equal keys, without and with owners that are killed at random moments (cases
//! C19, C20, C21).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use idempotency::store::MySqlStoreBuilder;
use idempotency::{IdempotencyLayer, MySqlStore, RetryLater, Scope, Tx};
use sqlx::{MySql, MySqlPool};
use tokio::task::JoinSet;

use crate::support::app::send;
use crate::support::mysql::{
    Way, assert_is_in_order, builder, create_effects, new_database, options, pool_on, store_on, write_effect,
};

const WORKERS: u32 = 64;
const LASTS: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Load {
    next: AtomicUsize,
    stop: AtomicBool,
    killing: AtomicBool,
    runs: AtomicU64,
    busy: AtomicU64,
    unavailable: AtomicU64,
    kills: AtomicU64,
    /// Every success of each key.
    answers: Mutex<HashMap<String, Vec<bytes::Bytes>>>,
}

/// A service of its own: its table of keys knows nothing of the others, as in another process.
fn service(store: MySqlStore, load: Arc<Load>) -> Router {
    let layer = IdempotencyLayer::new(store, Scope::shared());
    let handler = move |mut tx: Tx<MySql>, headers: HeaderMap| {
        let load = Arc::clone(&load);
        async move {
            let run = load.runs.fetch_add(1, Ordering::Relaxed);
            let key = headers["idempotency-key"].to_str().unwrap().to_owned();
            for step in 0..2 {
                if let Err(error) = write_effect(&mut tx, &format!("{key}/{step}")).await {
                    assert!(load.killing.load(Ordering::Relaxed), "{error}");
                    return RetryLater.into_response();
                }
                if run.is_multiple_of(3) {
                    tokio::time::sleep(Duration::from_millis(run % 7)).await;
                }
            }
            (StatusCode::CREATED, format!("run {run}")).into_response()
        }
    };
    Router::new().route("/effects", post(handler)).layer(layer)
}

/// Sends each key until it is answered, `equal` workers at the same keys.
async fn work(app: Router, load: Arc<Load>, equal: usize) {
    while !load.stop.load(Ordering::Relaxed) {
        let key = format!("key {}", load.next.fetch_add(1, Ordering::Relaxed) / equal);
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            assert!(Instant::now() < until, "{key}: no answer");
            let got = send(&app, Some(&key), "{}").await;
            match got.status.as_u16() {
                201 => {
                    load.answers.lock().unwrap().entry(key).or_default().push(got.body);
                    break;
                }
                409 if got.waits() => load.busy.fetch_add(1, Ordering::Relaxed),
                503 if got.waits() => load.unavailable.fetch_add(1, Ordering::Relaxed),
                _ => panic!("{key}: {got:?}"),
            };
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Ends a random session of the database every few milliseconds.
async fn kill(admin: MySqlPool, database: String, load: Arc<Load>) {
    while !load.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(7)).await;
        let victim: Option<i64> = sqlx::query_scalar(
            "SELECT CAST(id AS SIGNED) FROM information_schema.processlist
             WHERE db = ? AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1",
        )
        .bind(&database)
        .fetch_optional(&admin)
        .await
        .unwrap();
        if let Some(victim) = victim {
            let killed = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("KILL CONNECTION {victim}"))).execute(&admin).await;
            load.kills.fetch_add(u64::from(killed.is_ok()), Ordering::Relaxed);
        }
    }
}

async fn run(way: Way, equal: usize, kills: bool) {
    let database = new_database().await;
    let pool = pool_on(options().database(&database), WORKERS).await;
    store_on(&pool, way).await;
    create_effects(&pool).await;
    let admin = pool_on(options(), 2).await;
    let load = Arc::new(Load::default());
    load.killing.store(kills, Ordering::Relaxed);
    let mut tasks = JoinSet::new();
    let mut apps = Vec::new();
    for _ in 0..8 {
        let store = MySqlStoreBuilder::build(builder(&pool, way)).await.unwrap();
        apps.push(service(store, Arc::clone(&load)));
    }
    for worker in 0..WORKERS {
        tasks.spawn(work(apps[worker as usize % apps.len()].clone(), Arc::clone(&load), equal));
    }
    if kills {
        tasks.spawn(kill(admin.clone(), database.clone(), Arc::clone(&load)));
    }
    tokio::time::sleep(LASTS).await;
    load.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    let rows: Vec<(String, i64)> =
        sqlx::query_as(sqlx::AssertSqlSafe(format!("SELECT what, COUNT(*) FROM {database}.effects GROUP BY what")))
            .fetch_all(&admin)
            .await
            .unwrap();
    let answers = load.answers.lock().unwrap().clone();
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{way:?}, {equal} at a key, {} kills: {} keys, {} answers, {} runs, {} x 409, {} x 503",
        read(&load.kills),
        answers.len(),
        answers.values().map(Vec::len).sum::<usize>(),
        read(&load.runs),
        read(&load.busy),
        read(&load.unavailable),
    );
    assert!(rows.iter().all(|(_, count)| *count == 1), "an effect twice");
    assert_eq!(rows.len(), answers.len() * 2, "effects and answered keys differ");
    assert!(answers.values().all(|bodies| bodies.iter().all(|body| *body == bodies[0])), "two answers of one key");
    assert!(answers.len() > 10, "the test did not load the store");
    if kills {
        assert!(read(&load.kills) > 10, "nobody was killed");
    } else {
        assert_eq!(read(&load.unavailable), 0, "answers 5xx");
        assert_eq!(read(&load.runs), answers.len() as u64, "a handler ran twice");
    }
    // What is left in the pool is in order.
    for _ in 0..8 {
        if let Ok(mut connection) = pool.acquire().await
            && sqlx::Connection::ping(&mut *connection).await.is_ok()
        {
            assert_is_in_order(&mut connection).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fresh_keys() {
    run(Way::NoWait, 1, false).await;
    run(Way::NamedLock, 1, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn equal_keys() {
    run(Way::NoWait, 16, false).await;
    run(Way::NamedLock, 16, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fresh_keys_whose_owners_are_killed() {
    run(Way::NoWait, 1, true).await;
    run(Way::NamedLock, 1, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn equal_keys_whose_owners_are_killed() {
    run(Way::NoWait, 16, true).await;
    run(Way::NamedLock, 16, true).await;
}
