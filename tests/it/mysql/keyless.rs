//! H2: a guarded request without a key has a plain transaction, begun when it is first taken.

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use idempotency::{Attempt, IdempotencyLayer, MySqlStore, Scope, Tx};
use sqlx::{MySql, MySqlPool};

use crate::support::app::send;
use crate::support::mysql::{
    Way, assert_is_in_order, count_effects, create_effects, effects, pool_of, store_on, write_effect,
};

async fn setup() -> (MySqlPool, MySqlStore) {
    let pool = pool_of(3).await;
    let store = store_on(&pool, Way::NoWait).await;
    create_effects(&pool).await;
    (pool, store)
}

// H2: committed on 2xx and 3xx, rolled back otherwise, run each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_request_commits_on_success_and_rolls_back_otherwise() {
    let (pool, store) = setup().await;
    for (status, written) in [(201, 1), (302, 1), (402, 0), (404, 0), (500, 0)] {
        let before = count_effects(&pool).await;
        let app = effects(store.clone(), move |mut tx| async move {
            write_effect(&mut tx, "keyless").await.unwrap();
            StatusCode::from_u16(status).unwrap()
        });
        for _ in 0..2 {
            let got = send(&app, None, "{}").await;
            assert_eq!((got.status.as_u16(), got.is_replay()), (status, false));
        }
        assert_eq!(count_effects(&pool).await - before, 2 * written, "{status}");
    }
}

// H2: the server has rolled the transaction back, and a 201 without a row must not leave.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_success_after_a_deadlock_is_no_success() {
    let (pool, store) = setup().await;
    sqlx::raw_sql("INSERT INTO effects (what) VALUES ('a'), ('b')").execute(&pool).await.unwrap();
    let turn = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let app = effects(store, move |mut tx| {
        let rows = if turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 { [1_i64, 2] } else { [2, 1] };
        async move {
            write_effect(&mut tx, "lost").await.unwrap();
            for id in rows {
                let update = sqlx::query("UPDATE effects SET what = CONCAT(what, '.') WHERE id = ?").bind(id);
                let _ = update.execute(&mut *tx).await;
                let _ = write_effect(&mut tx, "more").await;
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
            StatusCode::CREATED
        }
    });
    let (one, two) = tokio::join!(send(&app, None, "{}"), send(&app, None, "{}"));
    let mut got = [(one.status.as_u16(), one.problem()), (two.status.as_u16(), two.problem())];
    got.sort();
    assert_eq!(got, [(201, String::new()), (500, "transaction-ended".to_owned())]);
    assert_eq!(count_effects(&pool).await, 5);
}

// H2, H29: a transaction that the handler has ended is no success either, whatever it began after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_success_with_an_ended_transaction_is_no_success() {
    let (_, store) = setup().await;
    const ENDS: [&[&str]; 4] = [&["COMMIT"], &["ROLLBACK"], &["COMMIT", "BEGIN"], &["ROLLBACK", "BEGIN"]];
    for (number, raw) in ENDS.into_iter().enumerate() {
        let app = effects(store.clone(), move |mut tx| async move {
            write_effect(&mut tx, "before").await.unwrap();
            for statement in raw {
                sqlx::raw_sql(*statement).execute(&mut *tx).await.unwrap();
            }
            StatusCode::CREATED
        });
        let got = send(&app, None, "{}").await;
        assert_eq!((got.status.as_u16(), got.problem().as_str()), (500, "transaction-ended"), "{number}");
    }
}

// H2: nothing is held where no transaction is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_request_that_takes_no_transaction_holds_no_connection() {
    let (pool, store) = setup().await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(pool.acquire().await.unwrap());
    }
    let layer = IdempotencyLayer::new(store, Scope::shared());
    let app = Router::new().route("/effects", post(|| async { StatusCode::CREATED })).layer(layer);
    assert_eq!(send(&app, None, "{}").await.status, 201);
}

// H28, H29: the second taker gets a typed error; a Tx kept past the handler is not committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_transaction_is_lent_once_and_given_back() {
    let (pool, store) = setup().await;
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let twice = |one: Tx<MySql>, two: Result<Tx<MySql>, idempotency::TxError>, attempt: Option<Attempt>| async move {
        assert!(matches!(two, Err(idempotency::TxError::AlreadyTaken)));
        assert!(attempt.is_none(), "there is no attempt without a key");
        drop(one);
        StatusCode::CREATED.into_response()
    };
    let app = Router::new().route("/effects", post(twice)).layer(layer);
    assert_eq!(send(&app, None, "{}").await.status, 201);

    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let holding = effects(store, move |mut tx| {
        let keep = keep.clone();
        async move {
            write_effect(&mut tx, "held").await.unwrap();
            keep.send(tx).unwrap();
            StatusCode::CREATED
        }
    });
    assert_eq!(send(&holding, None, "{}").await.problem(), "held-transaction");
    drop(kept.recv().await);
    assert_eq!(count_effects(&pool).await, 0);
}

// H2: dropping the request rolls back.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_request_that_is_dropped_is_rolled_back() {
    let (pool, store) = setup().await;
    let (written, mut was_written) = tokio::sync::mpsc::unbounded_channel();
    let app = effects(store, move |mut tx| {
        let written = written.clone();
        async move {
            write_effect(&mut tx, "dropped").await.unwrap();
            written.send(()).unwrap();
            std::future::pending::<StatusCode>().await
        }
    });
    let task = tokio::spawn(async move { send(&app, None, "{}").await.status });
    was_written.recv().await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(pool.acquire().await.unwrap());
    }
    for connection in &mut all {
        assert_is_in_order(connection).await;
    }
    drop(all);
    assert_eq!(count_effects(&pool).await, 0);
}
