//! H29: the transaction must still be the claim's own when it is settled, whatever the handler did to it. Here the server
//! itself rolls transactions back, so what counts is whether anything of it was committed.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::{MySqlStore, Tx};
use sqlx::{Acquire, MySql, MySqlPool};
use tower::ServiceExt;

use crate::support::app::{got, request, send};
use crate::support::mysql::{
    WAYS, Way, assert_is_in_order, count_effects, create_effects, effects, pool_of, store_on, write_effect,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    RawCommit,
    RawCommitAndBegin,
    RawCommitAndBeginToWrite,
    Definition,
    RawRollback,
    RawRollbackAndBegin,
    RawRollbackTo,
    ForgottenNested,
}

const DAMAGES: [Damage; 8] = [
    Damage::RawCommit,
    Damage::RawCommitAndBegin,
    Damage::RawCommitAndBeginToWrite,
    Damage::Definition,
    Damage::RawRollback,
    Damage::RawRollbackAndBegin,
    Damage::RawRollbackTo,
    Damage::ForgottenNested,
];

impl Damage {
    /// Whether what was written before is committed by it.
    fn commits(self) -> bool {
        match self {
            Self::RawCommit | Self::RawCommitAndBegin | Self::RawCommitAndBeginToWrite | Self::Definition => true,
            Self::RawRollback | Self::RawRollbackAndBegin | Self::RawRollbackTo | Self::ForgottenNested => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Refuse,
    Abandon,
    Panic,
}

const ENDS: [End; 4] = [End::Commit, End::Refuse, End::Abandon, End::Panic];

async fn damage(tx: &mut Tx<MySql>, damage: Damage) {
    let raw: &[&'static str] = match damage {
        Damage::RawCommit => &["COMMIT"],
        Damage::RawCommitAndBegin => &["COMMIT", "BEGIN"],
        Damage::RawCommitAndBeginToWrite => &["COMMIT", "START TRANSACTION READ WRITE"],
        Damage::Definition => &["CREATE TABLE IF NOT EXISTS defined (x INT)"],
        Damage::RawRollback => &["ROLLBACK"],
        Damage::RawRollbackAndBegin => &["ROLLBACK", "BEGIN"],
        Damage::RawRollbackTo => &["ROLLBACK TO SAVEPOINT idempotency_claim"],
        Damage::ForgottenNested => {
            std::mem::forget(tx.as_transaction().begin().await.unwrap());
            &[]
        }
    };
    for statement in raw {
        let done = sqlx::raw_sql(*statement).execute(&mut **tx).await;
        // The definition commits, and is refused after that.
        assert!(done.is_ok() || damage == Damage::Definition, "{damage:?}: {done:?}");
    }
}

fn end(end: End) -> Response {
    match end {
        End::Commit => StatusCode::CREATED.into_response(),
        End::Refuse => StatusCode::CONFLICT.into_response(),
        End::Abandon => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        End::Panic => panic!("as the test wants"),
    }
}

async fn setup(way: Way) -> (MySqlPool, MySqlStore) {
    let pool = pool_of(4).await;
    let store = store_on(&pool, way).await;
    create_effects(&pool).await;
    (pool, store)
}

/// Nothing is left in any session of the pool.
async fn assert_pool_is_clean(pool: &MySqlPool) {
    let mut connections = Vec::new();
    for _ in 0..4 {
        connections.push(pool.acquire().await.unwrap());
    }
    for connection in &mut connections {
        assert_is_in_order(connection).await;
    }
}

async fn status_or_panic(app: &Router, key: &str) -> Option<(u16, String)> {
    let task = tokio::spawn(app.clone().oneshot(request(Some(key), "{}")));
    match task.await {
        Ok(response) => {
            let got = got(response.unwrap()).await;
            Some((got.status.as_u16(), got.problem()))
        }
        Err(error) => error.is_panic().then_some(None)?,
    }
}

// H29, cases T07, D05: committed by the handler, the key is closed; rolled back, nothing is kept and the key is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_handler_ended_is_never_a_success() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
        for kind in DAMAGES {
            for outcome in ENDS {
                let before = count_effects(&pool).await;
                let app = effects(store.clone(), move |mut tx| async move {
                    write_effect(&mut tx, "before").await.unwrap();
                    damage(&mut tx, kind).await;
                    // Refused, or rolled back in the end: the session behind the transaction is read-only.
                    let _ = write_effect(&mut tx, "after").await;
                    end(outcome)
                });
                let key = format!("{kind:?} {outcome:?}");
                let first = status_or_panic(&app, &key).await;
                let told = |status: u16, problem: &str| Some((status, problem.to_owned()));
                let expected = match (outcome, kind.commits()) {
                    (End::Panic, _) => None,
                    (_, true) => told(500, "transaction-ended"),
                    (End::Abandon, false) => told(500, ""),
                    (_, false) => told(500, "transaction-aborted"),
                };
                assert_eq!(first, expected, "{way:?} {key}");
                assert_pool_is_clean(&pool).await;
                assert_eq!(count_effects(&pool).await - before, i64::from(kind.commits()), "{way:?} {key}");
                if kind.commits() {
                    // For good, whoever asks, and without a Retry-After.
                    for _ in 0..2 {
                        let later = send(&app, Some(&key), "{}").await;
                        let told = (later.status.as_u16(), later.problem());
                        assert_eq!(told, (409, "orphaned".to_owned()), "{way:?} {key}");
                        assert!(!later.waits());
                    }
                    assert_eq!(send(&app, Some(&key), "[1]").await.problem(), "key-reused", "{way:?} {key}");
                } else {
                    let healthy = effects(store.clone(), |tx| async move {
                        drop(tx);
                        StatusCode::CREATED
                    });
                    let retry = send(&healthy, Some(&key), "{}").await;
                    assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false), "{way:?} {key}");
                }
            }
        }
    }
}

/// Polls `future` `polls` times and drops it.
async fn poll_times<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

// H29, case T09: sqlx rolls the outer transaction back when a nested `begin` is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_begin_dropped_at_any_poll_loses_nothing_silently() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
        for outcome in [End::Commit, End::Refuse, End::Abandon] {
            // On a fast day a begin is done in its first poll: try again until one is cut in the middle.
            let mut aborted = 0;
            for round in 0..200 {
                let polls = round % 4;
                let before = count_effects(&pool).await;
                let (done, mut was_done) = tokio::sync::mpsc::unbounded_channel();
                let app = effects(store.clone(), move |mut tx| {
                    let done = done.clone();
                    async move {
                        write_effect(&mut tx, "before").await.unwrap();
                        let whole = poll_times(tx.as_transaction().begin(), polls).await;
                        let after = write_effect(&mut tx, "after").await.is_ok();
                        done.send((whole, after)).unwrap();
                        end(outcome)
                    }
                });
                let key = format!("nested {outcome:?} {round}");
                let first = send(&app, Some(&key), "{}").await;
                assert_pool_is_clean(&pool).await;
                let (whole, after) = was_done.recv().await.unwrap();
                let written = count_effects(&pool).await - before;
                if after {
                    // Not polled at all, or the nested transaction came to be and was rolled back alone.
                    let kept = matches!(outcome, End::Commit);
                    assert_eq!(written, if kept { 2 } else { 0 }, "{way:?} {key}: {first:?}");
                } else {
                    aborted += 1;
                    assert_eq!((first.status.as_u16(), written), (500, 0), "{way:?} {key}: {first:?}");
                    assert_ne!(send(&app, Some(&key), "{}").await.problem(), "orphaned", "{way:?} {key}");
                }
                if whole && aborted > 0 && round >= 4 {
                    break;
                }
            }
            assert!(aborted > 0, "{way:?}: no poll was in the middle of a begin");
        }
    }
}

// H28: nested transactions that end properly are fine.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_transaction_is_a_savepoint() {
    for way in WAYS {
        let (pool, store) = setup(way).await;
        let app = effects(store, |mut tx| async move {
            write_effect(&mut tx, "outer").await.unwrap();
            let mut kept = tx.as_transaction().begin().await.unwrap();
            sqlx::query("INSERT INTO effects (what) VALUES ('kept')").execute(&mut *kept).await.unwrap();
            kept.commit().await.unwrap();
            let mut undone = tx.as_transaction().begin().await.unwrap();
            sqlx::query("INSERT INTO effects (what) VALUES ('undone')").execute(&mut *undone).await.unwrap();
            undone.rollback().await.unwrap();
            drop(tx.as_transaction().begin().await.unwrap());
            StatusCode::CREATED
        });
        assert_eq!(send(&app, Some("nested"), "{}").await.status, 201);
        assert!(send(&app, Some("nested"), "{}").await.is_replay());
        assert_eq!(count_effects(&pool).await, 2);
    }
}
