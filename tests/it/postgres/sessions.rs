//! What claims leave behind on the server: nothing (cases T09, T12).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use idempotency::store::{Claim, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};

use crate::support::postgres::{is_inside_transaction, pool_of, store_on};

async fn advisory_locks(pool: &sqlx::PgPool) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid IN
         (SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid())",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

// Case T12: transaction-level locks only; the probe's session lock is gone with its statement.
#[tokio::test(flavor = "multi_thread")]
async fn no_advisory_lock_outlives_its_transaction() {
    let pool = pool_of(1).await;
    let store = store_on(&pool).await;
    let other = pool_of(1).await;
    drop(other);
    completed(&store, &request("done", 1), answer("done")).await;
    assert_eq!(advisory_locks(&pool).await, 0);
    let Verdict::Claimed(claim) = store.claim(&request("abandoned", 1)).await.unwrap() else { panic!() };
    claim.settle(Settlement::Abandon).await.unwrap();
    assert_eq!(advisory_locks(&pool).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prober_leaves_no_lock_in_its_session() {
    let pool = pool_of(2).await;
    let store = store_on(&pool).await;
    let Verdict::Claimed(claim) = store.claim(&request("probed", 1)).await.unwrap() else { panic!() };
    for body in [1, 2, 1, 2] {
        drop(store.claim(&request("probed", body)).await.unwrap());
        // The only connection that is left is the prober's.
        assert_eq!(advisory_locks(&pool).await, 0);
    }
    claim.settle(Settlement::Abandon).await.unwrap();
}

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

// Case T09: a pool of one, claims dropped at every poll a thousand times; the connection is never inside a
// transaction afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_claims_never_poison_the_pool() {
    let pool = pool_of(1).await;
    let store = store_on(&pool).await;
    for round in 0..1000 {
        poll_times(store.claim(&request(&format!("round {round}"), 1)), round % 8).await;
        let inside = is_inside_transaction(&mut pool.acquire().await.unwrap()).await;
        assert!(!inside, "round {round}: the connection is inside a transaction");
    }
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_keys").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0);
}
