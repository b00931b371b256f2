//! Operator calls on SQLite: orphans, and the announcements of the dead (S8).

use std::time::Duration;

use http::Extensions;
use idempotency::policy::State;
use idempotency::store::{Claim, ClaimRequest, Kept, Operate, Operated, Settlement, SqliteClaim, Store, Verdict};
use idempotency::testing::store::{answer, request};
use idempotency::{ErrorKind, SqliteStore, Tx};
use sqlx::Sqlite;

const KEPT: Duration = Duration::from_secs(3600);

async fn store_in(folder: &tempfile::TempDir) -> SqliteStore {
    let store = SqliteStore::open(folder.path().join("db")).await.unwrap();
    store.migrate().await.unwrap();
    store
}

async fn claimed(store: &SqliteStore, request: &ClaimRequest) -> SqliteClaim {
    let Verdict::Claimed(claim) = store.claim(&request.again()).await.unwrap() else { panic!("not free") };
    claim
}

/// A key whose handler has committed by itself (H29).
async fn orphan(store: &SqliteStore, request: &ClaimRequest) {
    let claim = claimed(store, request).await;
    let mut extensions = Extensions::new();
    claim.attach(&mut extensions);
    let mut tx = Tx::<Sqlite>::take(&extensions).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *tx).await.unwrap();
    drop(tx);
    let kept = Kept { answer: answer("lost"), retention: KEPT };
    assert_eq!(claim.settle(Settlement::Commit(kept)).await.unwrap_err().kind(), ErrorKind::TransactionEnded);
}

// S8, H29
#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_is_listed_and_then_settled_or_released() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(&folder).await;
    let (settled, released) = (request("settled", 1), request("released", 1));
    orphan(&store, &settled).await;
    orphan(&store, &released).await;
    let stuck = store.list_stuck(Duration::ZERO, 10).await.unwrap();
    assert_eq!(stuck.iter().map(|entry| entry.state).collect::<Vec<_>>(), [State::Orphaned, State::Orphaned]);
    let at = |request: &ClaimRequest| stuck.iter().find(|entry| entry.lookup == *request.lookup()).unwrap();
    let kept = Kept { answer: answer("by the operator"), retention: KEPT };
    assert_eq!(store.settle_as(at(&settled), kept).await.unwrap(), Operated::Done);
    let Verdict::Replay(record) = store.claim(&settled.again()).await.unwrap() else { panic!() };
    assert_eq!(record.answer, answer("by the operator"));
    assert_eq!(store.release(at(&released)).await.unwrap(), Operated::Done);
    claimed(&store, &released).await;
}

// S8, S16: of a store that lives it is running, old ones are listed, and one that is dropped is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn an_announcement_is_worth_as_much_as_its_owner_lives() {
    let folder = tempfile::tempdir().unwrap();
    let (store, rival) = (store_in(&folder).await, store_in(&folder).await);
    let asked = request("announced", 1);
    let claim = claimed(&rival, &asked).await;
    assert!(store.list_stuck(KEPT, 10).await.unwrap().is_empty(), "not so old");
    let running = store.list_stuck(Duration::ZERO, 10).await.unwrap().remove(0);
    assert_eq!(running.state, State::Running);
    assert_eq!(store.release(&running).await.unwrap(), Operated::InProgress);
    drop(claim);
    for _ in 0..100 {
        if store.list_stuck(Duration::ZERO, 10).await.unwrap().is_empty() {
            claimed(&store, &asked).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the announcement of a claim that was dropped stays");
}
