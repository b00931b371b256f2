//! H2: a guarded request without a key has a plain transaction, begun when it is first taken.

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use idempotency::{Attempt, IdempotencyLayer, PostgresStore, Scope, Tx};
use sqlx::{PgPool, Postgres};

use crate::support::app::{count_effects, create_effects, effects, send, write_effect};
use crate::support::postgres::{pool_of, store_on};

async fn setup() -> (PgPool, PostgresStore) {
    let pool = pool_of(3).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    (pool, store)
}

// H2, S7: committed on 2xx and 3xx, rolled back otherwise, run each time.
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

// H2: sqlx's commit says Ok for an aborted transaction; a 201 without a row must not leave.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyless_success_with_an_aborted_transaction_is_no_success() {
    let (pool, store) = setup().await;
    let app = effects(store, |mut tx| async move {
        write_effect(&mut tx, "lost").await.unwrap();
        assert!(sqlx::query("SELECT 1 / 0").execute(&mut *tx).await.is_err());
        StatusCode::CREATED
    });
    let got = send(&app, None, "{}").await;
    assert_eq!((got.status.as_u16(), got.problem().as_str()), (500, "transaction-aborted"));
    assert_eq!(count_effects(&pool).await, 0);
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

// H2, S7: nothing is held where no transaction is taken.
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
    let twice = |one: Tx<Postgres>, two: Result<Tx<Postgres>, idempotency::TxError>, attempt: Option<Attempt>| async move {
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
    for _ in 0..3 {
        // Every connection of the pool is usable and outside a transaction.
        assert_eq!(count_effects(&pool).await, 0);
    }
}
