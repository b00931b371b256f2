//! What becomes of a commit: stored, refused, rolled back by the server, given up (H31, H33, H34).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::{IdempotencyLayer, MySqlStore, Outcome, RetryLater, Scope};
use sqlx::{MySql, MySqlPool};

use crate::support::app::send;
use crate::support::mysql::{
    WAYS, Way, count_effects, create_effects, effects, layered, pool_of, store_on, write_effect,
};

async fn setup(way: Way) -> (MySqlPool, MySqlStore) {
    let pool = pool_of(5).await;
    let store = store_on(&pool, way).await;
    create_effects(&pool).await;
    (pool, store)
}

// H31, H32: writes and answers of the three outcomes.
#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_keeps_what_it_says() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
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
            assert_eq!(first.status, status, "{way:?} {status}");
            assert!(!first.is_replay());
            assert_eq!(count_effects(&pool).await - before, written, "{way:?} {status}");
            let second = send(&app, Some(&key), "{}").await;
            assert_eq!((second.status.as_u16(), second.is_replay()), (status, replays), "{way:?} {status}");
        }
    }
}

// S11, H24: a refusal keeps the time of its acceptance, also in place of a record that had expired.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_takes_the_place_of_an_expired_record() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
        let app = |status| {
            effects(store.clone(), move |mut tx| async move {
                write_effect(&mut tx, "one").await.unwrap();
                tokio::time::sleep(Duration::from_millis(30)).await;
                StatusCode::from_u16(status).unwrap()
            })
        };
        assert_eq!(send(&app(201), Some("again"), "{}").await.status, 201);
        let expire = "UPDATE idempotency_keys SET expires_at = UTC_TIMESTAMP(6)";
        sqlx::query(expire).execute(&pool).await.unwrap();
        assert_eq!(send(&app(402), Some("again"), "[1]").await.status, 402);
        assert!(send(&app(201), Some("again"), "[1]").await.is_replay());
        assert_eq!(count_effects(&pool).await, 1);
        let worked: i64 =
            sqlx::query_scalar("SELECT TIMESTAMPDIFF(MICROSECOND, accepted_at, settled_at) FROM idempotency_keys")
                .fetch_one(&pool)
                .await
                .unwrap();
        assert!((30_000..5_000_000).contains(&worked), "{worked}");
        let kept: i64 =
            sqlx::query_scalar("SELECT TIMESTAMPDIFF(SECOND, accepted_at, expires_at) FROM idempotency_keys")
                .fetch_one(&pool)
                .await
                .unwrap();
        assert_eq!(kept, 24 * 3600);
    }
}

// H33, case C08: class 23 is a refusal, and no reason to try again. (InnoDB has no deferred constraints: it refuses the
// statement, and the handler that swallows it commits without it.)
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_database_refuses_is_no_success() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
        sqlx::raw_sql("ALTER TABLE idempotency_keys ADD CONSTRAINT no_answer CHECK (answer IS NULL)")
            .execute(&pool)
            .await
            .unwrap();
        let app = effects(store, |mut tx| async move {
            write_effect(&mut tx, "refused").await.unwrap();
            StatusCode::CREATED
        });
        for _ in 0..2 {
            let refused = send(&app, Some("second"), "{}").await;
            assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (500, "commit-refused"), "{way:?}");
            assert!(!refused.waits());
        }
        assert_eq!(count_effects(&pool).await, 0);
    }
}

// H29: kept beyond the handler; rolled back once it is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_transaction_is_not_committed() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
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
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        while send(&app, Some("held"), "{}").await.problem() == "in-progress" {
            assert!(tokio::time::Instant::now() < until, "the key stays held");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(count_effects(&pool).await, 0);
    }
}

/// What a handler answers after a conflict.
type OnConflict = fn() -> Response;

/// A handler that updates two rows, every second time in the other order.
fn crossing(layer: IdempotencyLayer<MySqlStore>, on_conflict: OnConflict) -> axum::Router {
    let order = Arc::new(AtomicUsize::new(0));
    layered(layer, move |mut tx| {
        let turn = order.fetch_add(1, Ordering::SeqCst);
        async move {
            write_effect(&mut tx, "crossed").await.unwrap();
            let rows = if turn.is_multiple_of(2) { [1_i64, 2] } else { [2, 1] };
            for id in rows {
                let updated = sqlx::query("UPDATE effects SET what = CONCAT(what, '.') WHERE id = ?")
                    .bind(id)
                    .execute(&mut *tx)
                    .await;
                if let Err(error) = updated {
                    assert!(idempotency::is_retryable::<MySql>(&error), "{error}");
                    // What follows in the same handler must not be kept either.
                    for _ in 0..2 {
                        let _ = write_effect(&mut tx, "after the deadlock").await;
                    }
                    return on_conflict();
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            StatusCode::CREATED.into_response()
        }
    })
}

async fn crossed(app: &axum::Router, keys: [&str; 2]) -> [(u16, String); 2] {
    let (one, two) = tokio::join!(send(app, Some(keys[0]), "{}"), send(app, Some(keys[1]), "{}"));
    let mut got = [(one.status.as_u16(), one.problem()), (two.status.as_u16(), two.problem())];
    got.sort();
    got
}

// H34, cases C19, C23: two handlers that update the same rows in opposite order. The server rolls one of them back
// whole: whatever the handler makes of it, nothing is kept, and the key is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_in_the_handler_leaves_nothing_and_a_free_key() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
        sqlx::raw_sql("INSERT INTO effects (what) VALUES ('a'), ('b')").execute(&pool).await.unwrap();
        let layer = |reruns| IdempotencyLayer::new(store.clone(), Scope::shared()).rerun_on_conflict(reruns);
        let answers: [(OnConflict, u16, &str); 3] = [
            (|| RetryLater.into_response(), 503, "store-unavailable"),
            (|| StatusCode::INTERNAL_SERVER_ERROR.into_response(), 500, ""),
            // Swallowed: a success of which nothing is there.
            (|| StatusCode::CREATED.into_response(), 500, "transaction-aborted"),
        ];
        for (number, (on_conflict, status, problem)) in answers.into_iter().enumerate() {
            let before = count_effects(&pool).await;
            let app = crossing(layer(0), on_conflict);
            let keys = [format!("{number} one"), format!("{number} two")];
            let got = crossed(&app, [&keys[0], &keys[1]]).await;
            assert_eq!(got, [(201, String::new()), (status, problem.to_owned())], "{way:?}");
            assert_eq!(count_effects(&pool).await - before, 1, "{way:?} {number}");
            // One is replayed, and the other runs now, alone.
            for key in &keys {
                assert_eq!(send(&app, Some(key), "{}").await.status, 201, "{way:?} {number}");
            }
            assert_eq!(count_effects(&pool).await - before, 2, "{way:?} {number}");
        }
        let rerun = crossing(layer(2), || RetryLater.into_response());
        let got = crossed(&rerun, ["rerun one", "rerun two"]).await;
        assert_eq!(got.map(|(status, _)| status), [201, 201], "{way:?}");
    }
}
