//! What claims leave behind on the server: nothing (cases T09, T12).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::http::StatusCode;
use idempotency::store::{Claim, Kept, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use sqlx::MySqlPool;

use crate::support::app::send;
use crate::support::mysql::{
    WAYS, assert_is_in_order, count_effects, create_effects, effects, pool_of, store_on, write_effect,
};

/// Every session of a pool of this size is in order.
async fn assert_all_in_order(pool: &MySqlPool, size: u32) {
    let mut all = Vec::new();
    for _ in 0..size {
        all.push(pool.acquire().await.unwrap());
    }
    for connection in &mut all {
        assert_is_in_order(connection).await;
    }
}

// Case T12: no transaction, no mode of the session, no named lock, whatever became of the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_comes_back_as_it_was() {
    for way in WAYS {
        let pool = pool_of(2).await;
        let store = store_on(&pool, way).await;
        let kept = || Kept { answer: answer("done"), retention: Duration::from_secs(3600) };
        let endings =
            [Some(Settlement::Commit(kept())), Some(Settlement::Refuse(kept())), Some(Settlement::Abandon), None];
        for (number, ending) in endings.into_iter().enumerate() {
            let request = request(&format!("ended {number}"), 1);
            let Verdict::Claimed(claim) = store.claim(&request).await.unwrap() else { panic!() };
            for body in [1, 2] {
                // The second session of the pool asks, and is told.
                drop(store.claim(&crate::support::mysql::asked_again(&request, body)).await.unwrap());
            }
            match ending {
                Some(settlement) => drop(claim.settle(settlement).await.unwrap()),
                None => drop(claim),
            }
            assert_all_in_order(&pool, 2).await;
            // A replay, where there is something to replay.
            drop(store.claim(&request.again()).await.unwrap());
            assert_all_in_order(&pool, 2).await;
        }
    }
}

/// Polls `future` `polls` times and drops it.
async fn poll_times<F: Future>(future: F, polls: usize) {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending if left == 0 => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
}

// Case T09: a pool of one, claims and settlements dropped at every poll; the session is in order afterwards, and its
// answers are its own.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_claims_never_poison_the_pool() {
    for way in WAYS {
        let pool = pool_of(1).await;
        let store = store_on(&pool, way).await;
        for round in 0..400_i32 {
            poll_times(store.claim(&request(&format!("round {round}"), 1)), usize::try_from(round % 8).unwrap()).await;
            assert_all_in_order(&pool, 1).await;
            let echo: i32 = sqlx::query_scalar("SELECT ?").bind(round).fetch_one(&pool).await.unwrap();
            assert_eq!(echo, round, "{way:?}: an answer of another statement");
        }
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_keys").fetch_one(&pool).await.unwrap();
        assert_eq!(left, 0);
        completed(&store, &request("after all", 1), answer("done")).await;
    }
}

// A statement of the handler's that is dropped while sqlx prepares it leaves its answers in the connection. What the
// layer says must be true all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_the_handler_drops_half_way_does_not_forge_an_outcome() {
    for way in WAYS {
        let pool = pool_of(3).await;
        let store = store_on(&pool, way).await;
        create_effects(&pool).await;
        let store_timeout = crate::support::mysql::builder(&pool, way)
            .settle_timeout(Duration::from_millis(500))
            .build()
            .await
            .unwrap();
        drop(store);
        for status in [201, 409, 400] {
            for polls in 0..8 {
                let before = count_effects(&pool).await;
                let app = effects(store_timeout.clone(), move |mut tx| async move {
                    write_effect(&mut tx, "before").await.unwrap();
                    let dropped = sqlx::query("SELECT what, id, 'one', 'two', ? FROM effects WHERE id = ? OR id > ?")
                        .bind(1)
                        .bind(2)
                        .bind(3)
                        .persistent(polls % 2 == 0);
                    poll_times(dropped.fetch_all(&mut *tx), polls).await;
                    StatusCode::from_u16(status).unwrap()
                });
                let key = format!("dropped {status} {polls}");
                let first = send(&app, Some(&key), "{}").await;
                assert!(first.status == status || first.status.is_server_error(), "{way:?} {key}: {first:?}");
                let written = count_effects(&pool).await - before;
                assert!(written <= i64::from(status == 201), "{way:?} {key}");
                if first.status == 201 {
                    assert_eq!(written, 1, "{way:?} {key}: a success that is not there");
                }
                let healthy = effects(store_timeout.clone(), |mut tx| async move {
                    write_effect(&mut tx, "healthy").await.unwrap();
                    StatusCode::CREATED
                });
                // Until the server has noticed what became of the first.
                let mut last = send(&healthy, Some(&key), "{}").await;
                for _ in 0..100 {
                    if !last.waits() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    last = send(&healthy, Some(&key), "{}").await;
                }
                let expected = if last.is_replay() { status } else { 201 };
                assert_eq!(last.status, expected, "{way:?} {key}: {last:?}");
                let all = count_effects(&pool).await - before;
                let kept = i64::from(!(last.is_replay() && last.status == 409));
                assert_eq!(all, kept, "{way:?} {key}: {first:?}, {last:?}");
            }
        }
    }
}
