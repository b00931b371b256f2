//! Operator calls on MySQL: orphans, and the rows of running keys (S8).

use std::time::Duration;

use http::Extensions;
use idempotency::policy::State;
use idempotency::store::{Claim, ClaimRequest, Entry, Kept, MySqlClaim, Operate, Operated, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, MySqlStore, Tx};
use sqlx::MySql;
use tokio::time::{Instant, sleep};

use crate::support::mysql::{WAYS, pool_of, store_on};

const KEPT: Duration = Duration::from_secs(3600);

async fn claimed(store: &MySqlStore, request: &ClaimRequest) -> MySqlClaim {
    let Verdict::Claimed(claim) = store.claim(&request.again()).await.unwrap() else { panic!("not free") };
    claim
}

async fn find(store: &MySqlStore, request: &ClaimRequest) -> Vec<Entry> {
    let lookup = request.lookup();
    let all = store.find(lookup.scope(), lookup.key(), None).await.unwrap();
    let one = store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint())).await.unwrap();
    assert_eq!(all.len(), one.len());
    one
}

fn kept(text: &str) -> Kept {
    Kept { answer: answer(text), retention: KEPT }
}

/// A key whose handler has committed by itself (H29).
async fn orphan(store: &MySqlStore, request: &ClaimRequest) {
    let claim = claimed(store, request).await;
    let mut extensions = Extensions::new();
    claim.attach(&mut extensions);
    let mut tx = Tx::<MySql>::take(&extensions).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *tx).await.unwrap();
    drop(tx);
    let error = claim.settle(Settlement::Commit(kept("lost"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransactionEnded);
}

// S8, H29, case L21: what only a person can tell, a person tells.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_is_listed_and_then_settled_or_released() {
    for way in WAYS {
        let store = store_on(&pool_of(5).await, way).await;
        let (settled, released) = (request("settled", 1), request("released", 1));
        orphan(&store, &settled).await;
        orphan(&store, &released).await;
        completed(&store, &request("done", 1), answer("done")).await;
        let stuck = store.list_stuck(KEPT, 10).await.unwrap();
        assert_eq!(stuck.iter().map(|entry| entry.state).collect::<Vec<_>>(), [State::Orphaned, State::Orphaned]);
        assert_eq!(stuck[0].lookup, *settled.lookup(), "the oldest first");
        assert_eq!(store.settle_as(&stuck[0], kept("by the operator")).await.unwrap(), Operated::Done);
        assert_eq!(store.settle_as(&stuck[0], kept("again")).await.unwrap(), Operated::Changed);
        let Verdict::Replay(record) = store.claim(&settled.again()).await.unwrap() else { panic!() };
        assert_eq!(record.answer, answer("by the operator"));
        assert_eq!(store.release(&stuck[1]).await.unwrap(), Operated::Done);
        claimed(&store, &released).await;
    }
}

// H29: a handler that commits and dies leaves a row that says it is running, and is an orphan all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_row_that_is_committed_is_an_orphan() {
    for way in WAYS {
        let pool = pool_of(5).await;
        let store = store_on(&pool, way).await;
        let asked = request("k", 1);
        orphan(&store, &asked).await;
        sqlx::raw_sql("UPDATE idempotency_keys SET state = 0").execute(&pool).await.unwrap();
        let entry = find(&store, &asked).await.remove(0);
        assert_eq!(entry.state, State::Orphaned);
        assert_eq!(store.list_stuck(Duration::ZERO, 10).await.unwrap().len(), 1, "listed once");
        assert_eq!(store.release(&entry).await.unwrap(), Operated::Done);
        assert!(find(&store, &asked).await.is_empty());
    }
}

// S8, case C29: a running key is a row that is not committed. It is seen, left alone, and not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_key_is_shown_and_left_alone() {
    for way in WAYS {
        let pool = pool_of(5).await;
        let store = store_on(&pool, way).await;
        let asked = request("busy", 1);
        orphan(&store, &asked).await;
        let orphaned = find(&store, &asked).await.remove(0);
        // A claim takes the expired row over.
        sqlx::raw_sql("UPDATE idempotency_keys SET expires_at = UTC_TIMESTAMP(6)").execute(&pool).await.unwrap();
        let claim = claimed(&store, &asked).await;
        let fresh = claimed(&store, &request("fresh", 1)).await;
        for asked in [&asked, &request("fresh", 1)] {
            let entry = find(&store, asked).await.remove(0);
            assert_eq!((entry.state, entry.token), (State::Running, None), "{way:?}");
            assert_eq!(store.release(&entry).await.unwrap(), Operated::InProgress);
        }
        let since = Instant::now();
        assert_eq!(store.release(&orphaned).await.unwrap(), Operated::InProgress);
        assert_eq!(store.settle_as(&orphaned, kept("operator")).await.unwrap(), Operated::InProgress);
        assert_eq!(store.forget(&orphaned).await.unwrap(), Operated::InProgress);
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        assert!(store.list_stuck(KEPT, 10).await.unwrap().is_empty(), "not so old");
        sleep(Duration::from_millis(20)).await;
        let stuck = store.list_stuck(Duration::from_millis(10), 10).await.unwrap();
        assert_eq!(stuck.iter().map(|entry| entry.state).collect::<Vec<_>>(), [State::Running, State::Running]);
        assert_eq!(store.list_stuck(Duration::ZERO, 1).await.unwrap().len(), 1);
        claim.settle(Settlement::Commit(kept("owner"))).await.unwrap();
        assert_eq!(store.forget(&orphaned).await.unwrap(), Operated::Changed, "another operation's now");
        drop(fresh);
    }
}
