//! Connections that are lost, pools that are empty, servers that do not answer (H23, H33; cases T09, T11, T15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use idempotency::{IdempotencyLayer, Scope};
use sqlx::MySqlPool;

use crate::support::app::send;
use crate::support::mysql::{
    WAYS, Way, builder, count_effects, create_effects, effects, layered, new_database, options, pool_of, pool_on,
    pool_with, store_on, write_effect,
};
use crate::support::mysql_proxy::{Command, Proxy};
use crate::support::proxy::Then;

/// A pool through a proxy, on a database that `direct` looks at without it.
async fn through_proxy(size: u32, way: Way) -> (Proxy, MySqlPool, MySqlPool) {
    let database = new_database().await;
    let direct = pool_on(options().database(&database), 3).await;
    create_effects(&direct).await;
    store_on(&direct, way).await;
    let proxy = Proxy::start(&options()).await;
    let proxied = pool_on(proxy.options(&options()).database(&database), size).await;
    (proxy, proxied, direct)
}

/// Judges the first COMMIT of a claim's transaction, once. On MariaDB it is in a statement that is prepared just before.
fn once_at_commit(then: Then) -> impl FnMut(&Command<'_>) -> Then + Send + 'static {
    let (mut prepared, mut has_cut) = (false, false);
    move |command| {
        let text = String::from_utf8_lossy(command.payload);
        if command.kind == 22 {
            prepared = text.contains("BEGIN NOT ATOMIC");
        }
        if !has_cut && (command.is_query_with("; COMMIT;") || (command.kind == 23 && prepared)) {
            has_cut = true;
            return then;
        }
        Then::Forward
    }
}

// H33, case T15: the COMMIT arrived, its answer did not.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_again() {
    for way in WAYS {
        let (proxy, proxied, direct) = through_proxy(3, way).await;
        let store = builder(&proxied, way).build().await.unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let app = effects(store, move |mut tx| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                write_effect(&mut tx, "once").await.unwrap();
                (StatusCode::CREATED, format!("run {run}"))
            }
        });
        proxy.judge(once_at_commit(Then::CutAfter));
        let first = send(&app, Some("lost answer"), "{}").await;
        assert_eq!((first.status.as_u16(), &first.body[..]), (201, &b"run 0"[..]));
        let second = send(&app, Some("lost answer"), "{}").await;
        assert!(second.is_replay());
        assert_eq!(&second.body[..], b"run 0");
        assert_eq!((count_effects(&direct).await, runs.load(Ordering::SeqCst)), (1, 1));
    }
}

// H33, case T03: the COMMIT never arrived.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_lost_is_not_claimed_to_be_done() {
    for way in WAYS {
        let (proxy, proxied, direct) = through_proxy(3, way).await;
        let store = builder(&proxied, way).build().await.unwrap();
        let app = effects(store, |mut tx| async move {
            write_effect(&mut tx, "once").await.unwrap();
            StatusCode::CREATED
        });
        proxy.judge(once_at_commit(Then::CutBefore));
        let first = send(&app, Some("lost commit"), "{}").await;
        assert_eq!((first.status.as_u16(), first.problem().as_str()), (503, "not-recorded"));
        assert!(first.waits());
        assert_eq!(count_effects(&direct).await, 0);
        // The same key learns the truth.
        let second = send(&app, Some("lost commit"), "{}").await;
        assert_eq!((second.status.as_u16(), second.is_replay()), (201, false));
        assert_eq!(count_effects(&direct).await, 1);
    }
}

// Q3: cut at each of the service's messages, before or after it arrives; then retry until there is an answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_at_any_message_leaves_one_effect() {
    for way in WAYS {
        let (proxy, proxied, direct) = through_proxy(3, way).await;
        let store = builder(&proxied, way).build().await.unwrap();
        let app = effects(store, |mut tx| async move {
            match write_effect(&mut tx, "once").await {
                Ok(()) => StatusCode::CREATED,
                Err(_) => StatusCode::SERVICE_UNAVAILABLE,
            }
        });
        for then in [Then::CutBefore, Then::CutAfter] {
            for at in 0..40 {
                let before = count_effects(&direct).await;
                let mut left = at;
                let is_cut = Arc::new(AtomicU32::new(0));
                let told = Arc::clone(&is_cut);
                proxy.judge(move |_| {
                    left -= 1;
                    if left == -1 {
                        told.store(1, Ordering::SeqCst);
                        return then;
                    }
                    Then::Forward
                });
                let key = format!("cut {then:?} {at}");
                // Until it is replayed: the cut may meet the retry as well.
                let mut replayed = false;
                for _ in 0..50 {
                    let got = send(&app, Some(&key), "{}").await;
                    assert!(got.status == 201 || got.status == 503 || got.waits(), "{key}: {got:?}");
                    replayed = got.is_replay();
                    if replayed {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                assert!(replayed, "{key}: no answer");
                assert_eq!(count_effects(&direct).await - before, 1, "{key}");
                if is_cut.load(Ordering::SeqCst) == 0 {
                    break;
                }
            }
            proxy.judge(|_| Then::Forward);
        }
    }
}

// H23: a pool of one, in use: 503 after the bound, no hang.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_gets_no_connection_is_refused_in_time() {
    for way in WAYS {
        let pool = pool_of(1).await;
        let store = store_on(&pool, way).await;
        create_effects(&pool).await;
        let layer = IdempotencyLayer::new(store, Scope::shared()).claim_timeout(Duration::from_millis(300));
        let (enter, mut entered) = tokio::sync::mpsc::unbounded_channel();
        let gate = Arc::new(tokio::sync::Notify::new());
        let opened = Arc::clone(&gate);
        let app = layered(layer, move |mut tx| {
            let (enter, opened) = (enter.clone(), Arc::clone(&opened));
            async move {
                write_effect(&mut tx, "one").await.unwrap();
                enter.send(()).unwrap();
                opened.notified().await;
                StatusCode::CREATED
            }
        });
        let first = tokio::spawn({
            let app = app.clone();
            async move { send(&app, Some("first"), "{}").await.status }
        });
        entered.recv().await.unwrap();
        let started = Instant::now();
        let second = send(&app, Some("second"), "{}").await;
        assert_eq!((second.status.as_u16(), second.problem().as_str()), (503, "store-unavailable"));
        assert!(second.waits());
        assert!(started.elapsed() < Duration::from_secs(3));
        // The first one's duplicate needs no connection (H46).
        assert_eq!(send(&app, Some("first"), "{}").await.problem(), "in-progress");
        gate.notify_one();
        assert_eq!(first.await.unwrap(), 201);
        gate.notify_one();
        assert_eq!(send(&app, Some("second"), "{}").await.status, 201);
    }
}

// The handler that asks the pool besides its Tx, with a pool of one: an error after the pool's own bound, no hang.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_asks_the_pool_besides_its_tx_gets_an_error_with_a_pool_of_one() {
    for way in WAYS {
        let schema_pool = pool_of(1).await;
        let store = store_on(&schema_pool, way).await;
        create_effects(&schema_pool).await;
        let pool = schema_pool.clone();
        let app = effects(store, move |mut tx| {
            let pool = pool.clone();
            async move {
                write_effect(&mut tx, "one").await.unwrap();
                let second = tokio::time::timeout(Duration::from_millis(200), pool.acquire()).await;
                if second.is_ok() { StatusCode::CREATED } else { StatusCode::INTERNAL_SERVER_ERROR }
            }
        });
        assert_eq!(send(&app, Some("deadlock"), "{}").await.status, 500);
        assert_eq!(count_effects(&schema_pool).await, 0);
    }
}

// H23, case O11: no server at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_503_and_the_handler_never_runs() {
    for way in WAYS {
        let (proxy, proxied, direct) = through_proxy(2, way).await;
        let store = builder(&proxied, way).build().await.unwrap();
        let layer = IdempotencyLayer::new(store, Scope::shared()).claim_timeout(Duration::from_secs(1));
        let app = layered(layer, |mut tx| async move {
            write_effect(&mut tx, "one").await.unwrap();
            StatusCode::CREATED
        });
        proxy.judge(|_| Then::CutBefore);
        for _ in 0..3 {
            let down = send(&app, Some("down"), "{}").await;
            assert_eq!((down.status.as_u16(), down.problem().as_str(), down.waits()), (503, "store-unavailable", true));
        }
        assert_eq!(count_effects(&direct).await, 0);
        proxy.judge(|_| Then::Forward);
        assert_eq!(send(&app, Some("down"), "{}").await.status, 201);
    }
}

// H23, H33: a server that stops answering in the middle holds up neither the client nor anybody else's key.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_stalls_at_any_message_is_given_up_in_time() {
    for way in WAYS {
        // sqlx keeps a place of the pool for each stalled connection until the operating system gives it up.
        let (proxy, proxied, direct) = through_proxy(80, way).await;
        let store = builder(&proxied, way).settle_timeout(Duration::from_millis(300)).build().await.unwrap();
        // A retry has the time that it needs, on a busy machine too.
        let patient = builder(&proxied, way).build().await.unwrap();
        for status in [StatusCode::CREATED, StatusCode::CONFLICT, StatusCode::BAD_REQUEST] {
            let patient = effects(patient.clone(), move |mut tx| async move {
                let written = write_effect(&mut tx, "one").await;
                if written.is_ok() { status } else { StatusCode::SERVICE_UNAVAILABLE }
            });
            let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).claim_timeout(Duration::from_millis(300));
            let runs = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&runs);
            let app = layered(layer, move |mut tx| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    let written = tokio::time::timeout(Duration::from_millis(300), write_effect(&mut tx, "one")).await;
                    if matches!(written, Ok(Ok(()))) { status } else { StatusCode::SERVICE_UNAVAILABLE }
                }
            });
            for at in 0..20 {
                let before = runs.load(Ordering::SeqCst);
                let mut left = at;
                let stalled = Arc::new(AtomicU32::new(0));
                let told = Arc::clone(&stalled);
                proxy.judge(move |_| {
                    left -= 1;
                    if left == -1 {
                        told.store(1, Ordering::SeqCst);
                        return Then::Stall;
                    }
                    Then::Forward
                });
                let started = Instant::now();
                let got = send(&app, Some(&format!("stall {status} {at}")), "{}").await;
                assert!(started.elapsed() < Duration::from_secs(5), "{status} {at}: {:?}", started.elapsed());
                assert!(got.status == status || got.status == 503, "{status} {at}: {got:?}");
                if stalled.load(Ordering::SeqCst) == 0 {
                    break;
                }
                if runs.load(Ordering::SeqCst) == before {
                    // In BEGIN or in the claim: the server finds out by itself.
                    continue;
                }
                // The session of a claim is ended from another one, so that its key does not stay held.
                proxy.judge(|_| Then::Forward);
                let asked_at = Instant::now();
                let mut retry = send(&patient, Some(&format!("stall {status} {at}")), "{}").await;
                while retry.status != status && asked_at.elapsed() < Duration::from_secs(10) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    retry = send(&patient, Some(&format!("stall {status} {at}")), "{}").await;
                }
                assert_eq!(retry.status, status, "{way:?} {status} {at}: {retry:?}");
            }
            proxy.judge(|_| Then::Forward);
        }
        let other = effects(store, |tx| async move {
            drop(tx);
            StatusCode::CREATED
        });
        assert_eq!(send(&other, Some("another key"), "{}").await.status, 201);
        drop(direct);
    }
}

// Case T11: the server ends a claim whose handler hangs, where the host's sessions say so; the key is free.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_claim_is_ended_by_the_server() {
    for way in WAYS {
        let options = options().database(&new_database().await);
        let pool = pool_with(options, 2, "SET SESSION idle_write_transaction_timeout = 1").await;
        let store = store_on(&pool, way).await;
        create_effects(&pool).await;
        let runs = Arc::new(AtomicU32::new(0));
        let app = effects(store, move |mut tx| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            async move {
                write_effect(&mut tx, "one").await.unwrap();
                if run == 0 {
                    tokio::time::sleep(Duration::from_millis(1800)).await;
                }
                StatusCode::CREATED
            }
        });
        let ended = send(&app, Some("idle"), "{}").await;
        assert_eq!((ended.status.as_u16(), ended.waits()), (503, true), "{way:?} {ended:?}");
        assert_eq!(send(&app, Some("idle"), "{}").await.status, 201, "{way:?}");
        assert_eq!(count_effects(&pool).await, 1);
    }
}

// Case L08: the session dies in the middle of the handler. KILL returns before its victim is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_frees_the_key_soon() {
    for way in WAYS {
        let pool = pool_of(3).await;
        let store = store_on(&pool, way).await;
        create_effects(&pool).await;
        let runs = Arc::new(AtomicU32::new(0));
        let admin = pool.clone();
        let app = effects(store, move |mut tx| {
            let (run, admin) = (runs.fetch_add(1, Ordering::SeqCst), admin.clone());
            async move {
                write_effect(&mut tx, "one").await.unwrap();
                if run == 0 {
                    let id: u64 = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS UNSIGNED)")
                        .fetch_one(&mut *tx)
                        .await
                        .unwrap();
                    let kill = sqlx::AssertSqlSafe(format!("KILL CONNECTION {id}"));
                    sqlx::raw_sql(kill).execute(&admin).await.unwrap();
                }
                StatusCode::CREATED
            }
        });
        assert_eq!(send(&app, Some("killed"), "{}").await.status, 503, "{way:?}");
        let started = Instant::now();
        let mut retry = send(&app, Some("killed"), "{}").await;
        while retry.status == 409 && started.elapsed() < Duration::from_secs(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            retry = send(&app, Some("killed"), "{}").await;
        }
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false), "{way:?}");
        assert_eq!(count_effects(&pool).await, 1);
    }
}
