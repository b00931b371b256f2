//! H29: the transaction must still be the claim's own when it is settled, whatever the handler did to it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::{PostgresStore, Tx};
use sqlx::{Acquire, PgPool, Postgres};
use tower::ServiceExt;

use crate::support::app::{count_effects, create_effects, effects, request, send, write_effect};
use crate::support::postgres::{is_inside_transaction, pool_of, store_on};

#[derive(Clone, Copy, Debug)]
enum Damage {
    RawCommit,
    RawRollback,
    RawCommitAndBegin,
    RawRollbackAndBegin,
    NestedBeginInAborted,
    ForgottenNested,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Refuse,
    Abandon,
    Panic,
}

async fn damage(tx: &mut Tx<Postgres>, damage: Damage) {
    let raw: &[&'static str] = match damage {
        Damage::RawCommit => &["COMMIT"],
        Damage::RawRollback => &["ROLLBACK"],
        Damage::RawCommitAndBegin => &["COMMIT", "BEGIN"],
        Damage::RawRollbackAndBegin => &["ROLLBACK", "BEGIN"],
        Damage::NestedBeginInAborted => {
            assert!(sqlx::query("SELECT 1 / 0").execute(&mut **tx).await.is_err());
            assert!(tx.as_transaction().begin().await.is_err());
            &[]
        }
        Damage::ForgottenNested => {
            std::mem::forget(tx.as_transaction().begin().await.unwrap());
            &[]
        }
    };
    for statement in raw {
        sqlx::raw_sql(*statement).execute(&mut **tx).await.unwrap();
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

async fn setup() -> (PgPool, PostgresStore) {
    let pool = pool_of(4).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    (pool, store)
}

/// No connection of the pool is left inside a transaction.
async fn assert_pool_is_clean(pool: &PgPool) {
    let mut connections = Vec::new();
    for _ in 0..4 {
        connections.push(pool.acquire().await.unwrap());
    }
    for connection in &mut connections {
        let inside = is_inside_transaction(connection).await;
        assert!(!inside, "a connection was returned inside a transaction");
    }
}

async fn status_or_panic(app: &Router, key: &str) -> Option<(u16, String)> {
    let task = tokio::spawn(app.clone().oneshot(request(Some(key), "{}")));
    match task.await {
        Ok(response) => {
            let got = crate::support::app::got(response.unwrap()).await;
            Some((got.status.as_u16(), got.problem()))
        }
        Err(error) => error.is_panic().then_some(None)?,
    }
}

// H29, cases T07, D05
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_handler_ended_closes_the_key() {
    let (pool, store) = setup().await;
    for kind in [
        Damage::RawCommit,
        Damage::RawRollback,
        Damage::RawCommitAndBegin,
        Damage::RawRollbackAndBegin,
        Damage::NestedBeginInAborted,
        Damage::ForgottenNested,
    ] {
        for outcome in [End::Commit, End::Refuse, End::Abandon, End::Panic] {
            let app = effects(store.clone(), move |mut tx| async move {
                write_effect(&mut tx, "before").await.unwrap();
                damage(&mut tx, kind).await;
                let _ = write_effect(&mut tx, "after").await;
                end(outcome)
            });
            let key = format!("{kind:?} {outcome:?}");
            let first = status_or_panic(&app, &key).await;
            match outcome {
                End::Panic => assert_eq!(first, None, "{key}"),
                _ => assert_eq!(first, Some((500, "transaction-ended".to_owned())), "{key}"),
            }
            // For good, whoever asks, and without a Retry-After.
            for _ in 0..2 {
                let later = send(&app, Some(&key), "{}").await;
                assert_eq!((later.status.as_u16(), later.problem().as_str()), (409, "orphaned"), "{key}");
                assert!(!later.waits());
            }
            assert_eq!(send(&app, Some(&key), "[1]").await.problem(), "key-reused", "{key}");
            assert_pool_is_clean(&pool).await;
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

// H29, case T09: sqlx rolls the outer transaction back when a nested `begin` is dropped; later writes autocommit.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_begin_dropped_at_any_poll_loses_nothing_silently() {
    let (pool, store) = setup().await;
    for outcome in [End::Commit, End::Refuse, End::Abandon] {
        // On a fast day a begin is done in its first poll: try again until one is cut in the middle.
        let mut ended = 0;
        for round in 0..200 {
            let polls = round % 4;
            let before = count_effects(&pool).await;
            let (done, mut was_done) = tokio::sync::mpsc::unbounded_channel();
            let app = effects(store.clone(), move |mut tx| {
                let done = done.clone();
                async move {
                    write_effect(&mut tx, "before").await.unwrap();
                    done.send(poll_times(tx.as_transaction().begin(), polls).await).unwrap();
                    let _ = write_effect(&mut tx, "after").await;
                    end(outcome)
                }
            });
            let key = format!("nested {outcome:?} {round}");
            let first = send(&app, Some(&key), "{}").await;
            let written = count_effects(&pool).await - before;
            if first.problem() == "transaction-ended" {
                ended += 1;
                assert_eq!(send(&app, Some(&key), "{}").await.problem(), "orphaned");
            } else {
                // Not polled at all, or the nested transaction came to be and was rolled back alone.
                let kept = matches!(outcome, End::Commit);
                assert_eq!(written, if kept { 2 } else { 0 }, "{key}: {first:?}");
            }
            assert_pool_is_clean(&pool).await;
            let was_done = was_done.recv().await.unwrap();
            if was_done && ended > 0 && round >= 4 {
                break;
            }
        }
        assert!(ended > 0, "no poll was in the middle of a begin");
    }
}

// H28: nested transactions that end properly are fine.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_transaction_is_a_savepoint() {
    let (pool, store) = setup().await;
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
