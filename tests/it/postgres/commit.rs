//! What becomes of a commit: stored, refused, aborted, given up (H31, H33, H34).

use axum::http::StatusCode;
use axum::response::IntoResponse;
use idempotency::{IdempotencyLayer, Outcome, PostgresStore, RetryLater, Scope};
use sqlx::PgPool;

use crate::support::app::{count_effects, create_effects, effects, layered, send, write_effect};
use crate::support::postgres::{pool_of, store_on};

async fn setup() -> (PgPool, PostgresStore) {
    let pool = pool_of(5).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    (pool, store)
}

// H31, H32: writes and answers of the three outcomes.
#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_keeps_what_it_says() {
    let (pool, store) = setup().await;
    let cases = [
        (201, None, 1, true),
        (303, None, 1, true),
        (402, None, 0, true),
        (409, None, 0, true),
        (410, None, 0, true),
        (400, None, 0, false),
        (422, None, 0, false),
        (500, None, 0, false),
        (503, None, 0, false),
        (404, Some(Outcome::refuse()), 0, true),
        (500, Some(Outcome::commit()), 1, true),
        (200, Some(Outcome::abandon()), 0, false),
    ];
    for (number, (status, override_with, written, replays)) in cases.into_iter().enumerate() {
        let before = count_effects(&pool).await;
        let app = effects(store.clone(), move |mut tx| async move {
            write_effect(&mut tx, "one").await.unwrap();
            let mut response = StatusCode::from_u16(status).unwrap().into_response();
            if let Some(outcome) = override_with {
                response.extensions_mut().insert(outcome);
            }
            response
        });
        let key = format!("outcome {number}");
        let first = send(&app, Some(&key), "{}").await;
        assert_eq!(first.status, status, "{status}");
        assert!(!first.is_replay());
        assert_eq!(count_effects(&pool).await - before, written, "{status}");
        let second = send(&app, Some(&key), "{}").await;
        assert_eq!((second.status.as_u16(), second.is_replay()), (status, replays), "{status}");
    }
}

// H33, case C08: a deferred constraint refuses at COMMIT.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_database_refuses_is_no_success() {
    let (pool, store) = setup().await;
    sqlx::raw_sql("ALTER TABLE effects ADD CONSTRAINT what_once UNIQUE (what) DEFERRABLE INITIALLY DEFERRED")
        .execute(&pool)
        .await
        .unwrap();
    let app = effects(store, |mut tx| async move {
        write_effect(&mut tx, "same").await.unwrap();
        StatusCode::CREATED
    });
    assert_eq!(send(&app, Some("first"), "{}").await.status, 201);
    for _ in 0..2 {
        let refused = send(&app, Some("second"), "{}").await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (500, "commit-refused"));
        assert!(!refused.waits());
    }
    assert_eq!(count_effects(&pool).await, 1);
}

// H33, case T18: sqlx's own commit says Ok here.
#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_database_error_is_no_success() {
    let (pool, store) = setup().await;
    let app = effects(store, |mut tx| async move {
        write_effect(&mut tx, "one").await.unwrap();
        let swallowed = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
        assert!(swallowed.is_err());
        StatusCode::CREATED
    });
    for _ in 0..2 {
        let aborted = send(&app, Some("aborted"), "{}").await;
        assert_eq!((aborted.status.as_u16(), aborted.problem().as_str()), (500, "transaction-aborted"));
        assert!(!aborted.waits());
    }
    assert_eq!(count_effects(&pool).await, 0);
}

// H29: kept beyond the handler; rolled back once it is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_transaction_is_not_committed() {
    let (pool, store) = setup().await;
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let app = effects(store, move |mut tx| {
        let keep = keep.clone();
        async move {
            write_effect(&mut tx, "held").await.unwrap();
            keep.send(tx).unwrap();
            StatusCode::CREATED
        }
    });
    let held = send(&app, Some("held"), "{}").await;
    assert_eq!((held.status.as_u16(), held.problem().as_str()), (500, "held-transaction"));
    // The key is not free before the transaction is.
    assert_eq!(send(&app, Some("held"), "{}").await.problem(), "in-progress");
    drop(kept.recv().await.unwrap());
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    while send(&app, Some("held"), "{}").await.problem() == "in-progress" {
        assert!(tokio::time::Instant::now() < until, "the key stays held");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(count_effects(&pool).await, 0);
}

// H34, case C23: two handlers that update the same rows in opposite order.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_in_the_handler_is_answered_with_retry_later_and_rerun_where_allowed() {
    let (pool, store) = setup().await;
    sqlx::raw_sql("INSERT INTO effects (what) VALUES ('a'), ('b')").execute(&pool).await.unwrap();
    let app = |reruns| {
        let order = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).rerun_on_conflict(reruns);
        layered(layer, move |mut tx| {
            let turn = order.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move {
                let rows = if turn.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
                for what in rows {
                    let updated = sqlx::query("UPDATE effects SET what = what WHERE what = $1")
                        .bind(what)
                        .execute(&mut *tx)
                        .await;
                    if let Err(error) = updated {
                        assert!(idempotency::is_retryable::<sqlx::Postgres>(&error), "{error}");
                        return RetryLater.into_response();
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                }
                StatusCode::CREATED.into_response()
            }
        })
    };
    let bare = app(0);
    let (one, two) = tokio::join!(send(&bare, Some("one"), "{}"), send(&bare, Some("two"), "{}"));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 503]);
    assert!(one.waits() || two.waits());

    let rerun = app(2);
    let (one, two) = tokio::join!(send(&rerun, Some("three"), "{}"), send(&rerun, Some("four"), "{}"));
    assert_eq!((one.status.as_u16(), two.status.as_u16()), (201, 201));
}
