//! What a request costs the server: four round trips, and no statement left behind (S10, S15).

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use idempotency::PostgresStore;
use sqlx::PgPool;

use crate::support::app::{create_effects, effects, send, write_effect};
use crate::support::postgres::{options, pool_of, pool_on, store_on};
use crate::support::proxy::{Proxy, Then};

async fn schema_of(pool: &PgPool) -> String {
    sqlx::query_scalar("SELECT current_schema()::text").fetch_one(pool).await.unwrap()
}

/// What travels from now on, by kind.
fn count(proxy: &Proxy) -> Arc<Mutex<Vec<String>>> {
    let trips = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&trips);
    proxy.judge(move |message| {
        match message.kind {
            b'Q' => seen.lock().unwrap().push(String::from_utf8_lossy(message.payload).into_owned()),
            b'P' => seen.lock().unwrap().push("prepare".to_owned()),
            b'E' => seen.lock().unwrap().push("execute".to_owned()),
            _ => {}
        }
        Then::Forward
    });
    trips
}

/// What the pool does when a connection comes back is not ours, and not in the request's time.
async fn pool_is_done() {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

// S10
#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_takes_four_round_trips() {
    let direct = pool_of(2).await;
    store_on(&direct).await;
    create_effects(&direct).await;
    let proxy = Proxy::start(&options()).await;
    let schema = schema_of(&direct).await;
    let pool = pool_on(proxy.options(&options()).options([("search_path", schema)]), 1).await;
    let store = PostgresStore::new(pool).await.unwrap();
    let app = effects(store, |tx| async move {
        drop(tx);
        StatusCode::CREATED
    });
    assert_eq!(send(&app, Some("warm"), "{}").await.status, 201);
    pool_is_done().await;
    let trips = count(&proxy);
    assert_eq!(send(&app, Some("counted"), "{}").await.status, 201);
    let trips = trips.lock().unwrap().clone();
    let expected = ["BEGIN ISOLATION LEVEL READ COMMITTED\0", "execute", "execute", "COMMIT\0"];
    assert_eq!(trips[..4], expected, "{trips:?}");
    assert!(trips[4..].iter().all(|trip| trip.contains("ping")), "{trips:?}");
}

// S10, S12: a key that this process saw done needs no transaction, save where statements outside one run under a
// stricter isolation level; one that it has not seen needs a transaction once, and under READ COMMITTED both forms of the
// claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_takes_one_round_trip() {
    let direct = pool_of(2).await;
    store_on(&direct).await;
    create_effects(&direct).await;
    let proxy = Proxy::start(&options()).await;
    let schema = schema_of(&direct).await;
    const TRANSACTION: [&str; 4] = ["BEGIN ISOLATION LEVEL READ COMMITTED\0", "execute", "execute", "ROLLBACK\0"];
    for (level, expected) in [("read committed", &["execute"][..]), ("serializable", &TRANSACTION)] {
        let through = proxy.options(&options());
        let through = through.options([("search_path", schema.as_str()), ("default_transaction_isolation", level)]);
        let pool = pool_on(through, 1).await;
        let app = |store| {
            effects(store, |tx| async move {
                drop(tx);
                StatusCode::CREATED
            })
        };
        let first = app(PostgresStore::new(pool.clone()).await.unwrap());
        let other = app(PostgresStore::new(pool.clone()).await.unwrap());
        let third = app(PostgresStore::new(pool).await.unwrap());
        let key = format!("replayed under {level}");
        assert!(!send(&first, Some(&key), "{}").await.is_replay());
        // Prepares the statements.
        assert!(send(&first, Some(&key), "{}").await.is_replay());
        assert!(send(&third, Some(&key), "{}").await.is_replay());
        for (app, expected) in [(&first, expected), (&other, &TRANSACTION), (&other, expected)] {
            pool_is_done().await;
            let trips = count(&proxy);
            assert!(send(app, Some(&key), "{}").await.is_replay());
            pool_is_done().await;
            let trips = trips.lock().unwrap().clone();
            assert_eq!(trips.iter().filter(|trip| !trip.contains("ping")).collect::<Vec<_>>(), expected, "{level}");
        }
        assert_eq!(send(&first, Some(&key), "[]").await.problem(), "key-reused");
        // An expired row is no row.
        sqlx::query("UPDATE idempotency_keys SET expires_at = clock_timestamp()").execute(&direct).await.unwrap();
        assert_eq!(send(&first, Some(&key), "[]").await.status, 201);
    }
}

// S10, case T13: where the pool keeps no statement cache, none stays behind on the server.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_statement_cache_no_statement_stays_behind() {
    let direct = pool_of(2).await;
    store_on(&direct).await;
    create_effects(&direct).await;
    let schema = schema_of(&direct).await;
    let pool = pool_on(options().options([("search_path", schema)]).statement_cache_capacity(0), 1).await;
    let store = PostgresStore::new(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    let statuses = [201, 402, 500];
    let app = |status| {
        effects(store.clone(), move |tx| async move {
            drop(tx);
            StatusCode::from_u16(status).unwrap()
        })
    };
    for status in statuses {
        for _ in 0..2 {
            assert_eq!(send(&app(status), Some(&format!("cacheless {status}")), "{}").await.status, status);
        }
    }
    let left: Vec<String> = sqlx::raw_sql("SELECT statement FROM pg_prepared_statements")
        .fetch_all(&pool)
        .await
        .unwrap()
        .iter()
        .map(|row| sqlx::Row::get(row, 0))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

// S12, S15: the claim's own isolation level and timeouts, whatever the pool's are, and none of them left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_brings_its_own_settings_and_takes_them_with_it() {
    let direct = pool_of(2).await;
    store_on(&direct).await;
    create_effects(&direct).await;
    let schema = schema_of(&direct).await;
    let serializable =
        options().options([("search_path", schema.as_str()), ("default_transaction_isolation", "serializable")]);
    let pool = pool_on(serializable, 1).await;
    let store = PostgresStore::new(pool.clone()).await.unwrap();
    let (sender, mut settings) = tokio::sync::mpsc::unbounded_channel();
    let app = effects(store, move |mut tx| {
        let sender = sender.clone();
        async move {
            write_effect(&mut tx, "one").await.unwrap();
            for name in ["transaction_isolation", "idle_in_transaction_session_timeout", "tcp_keepalives_idle"] {
                let value: String =
                    sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(&mut *tx).await.unwrap();
                sender.send(value).unwrap();
            }
            StatusCode::CREATED
        }
    });
    assert_eq!(send(&app, Some("settings"), "{}").await.status, 201);
    let mut during = Vec::new();
    while let Ok(value) = settings.try_recv() {
        during.push(value);
    }
    assert_eq!(during, ["read committed", "5min", "30"]);
    let after: String = sqlx::query_scalar("SELECT current_setting('idle_in_transaction_session_timeout')")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(after, "0");
}
