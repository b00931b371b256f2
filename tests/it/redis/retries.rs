//! Calls whose answer is lost (S6).

use std::time::Duration;

use idempotency::ErrorKind;
use idempotency::store::{Claim, Fence, Kept, RedisClaim, RedisStore, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use tokio::sync::RwLockReadGuard;

use crate::support::redis::{Cutter, LEASE, calm, cutter, kind, prefix, single};

/// A store behind a cutter, whose scripts the server knows.
async fn behind() -> (RedisStore, Cutter, RwLockReadGuard<'static, ()>) {
    let calm = calm().await;
    let cutter = cutter().await;
    let store = RedisStore::single(cutter.url()).prefix(prefix()).lease(LEASE).build().unwrap();
    completed(&store, &request("warm", 1), answer("warm")).await;
    let mut claim = claimed(&store, "warm too").await;
    claim.renew().await.unwrap();
    claim.control().unwrap().dispatching().await.unwrap();
    claim.settle(Settlement::Abandon).await.unwrap();
    claimed(&store, "warm three").await.settle(Settlement::Unknown).await.unwrap();
    (store, cutter, calm)
}

async fn claimed(store: &RedisStore, key: &str) -> RedisClaim {
    match store.claim(&request(key, 1)).await.unwrap() {
        Verdict::Claimed(claim) => claim,
        other => panic!("not claimed: {other:?}"),
    }
}

fn commit(text: &str) -> Settlement {
    Settlement::Commit(Kept { answer: answer(text), retention: Duration::from_secs(3600) })
}

// S6: the claim stands, and it is known again by its token.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_is_lost_is_the_askers_own() {
    let (store, cutter, _calm) = behind().await;
    cutter.cut();
    let claim = claimed(&store, "lost").await;
    assert!(cutter.has_cut());
    assert_eq!(claim.attempt(), 1, "it was not taken over from itself");
    assert!(matches!(store.claim(&request("lost", 1)).await, Ok(Verdict::InProgress { .. })));
    claim.settle(commit("done")).await.unwrap();
    assert!(matches!(store.claim(&request("lost", 1)).await, Ok(Verdict::Replay(_))));
}

// S3, S6: every end is recognised when it is asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_whose_answer_is_lost_is_done_once() {
    let (store, cutter, _calm) = behind().await;
    for (key, settlement, then) in [
        ("committed", commit("done"), "replay"),
        ("abandoned", Settlement::Abandon, "claimed"),
        ("stopped", Settlement::Unknown, "claimed"),
    ] {
        let claim = claimed(&store, key).await;
        cutter.cut();
        claim.settle(settlement).await.unwrap();
        assert!(cutter.has_cut());
        let told = match store.claim(&request(key, 1)).await.unwrap() {
            Verdict::Replay(record) if record.answer == answer("done") => "replay",
            Verdict::Claimed(_) => "claimed",
            other => panic!("{key}: {other:?}"),
        };
        assert_eq!(told, then, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_and_a_mark_whose_answer_is_lost_are_done() {
    let (store, cutter, _calm) = behind().await;
    let mut claim = claimed(&store, "renewed").await;
    cutter.cut();
    claim.renew().await.unwrap();
    cutter.cut();
    claim.control().unwrap().dispatching().await.unwrap();
    assert!(cutter.has_cut());
    claim.settle(Settlement::Unknown).await.unwrap();
    assert!(matches!(store.claim(&request("renewed", 1)).await, Ok(Verdict::Unknown)));
}

// S6: a late copy of a claim that has been released already holds the key for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_copy_of_a_released_claim_takes_nothing() {
    let (store, _cutter, _calm) = behind().await;
    let asked = request("late copy", 1);
    let Verdict::Claimed(claim) = store.claim(&asked).await.unwrap() else { panic!("not free") };
    let fence = claim.fence();
    claim.settle(Settlement::Abandon).await.unwrap();
    assert_eq!(kind(store.claim(&asked).await), ErrorKind::Unavailable);
    let next = claimed(&store, "late copy").await;
    assert!(next.fence() > fence && next.fence() > Some(Fence(1)));
}

// S25: the call is repeated with the script's text, whichever call it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_its_scripts_is_told_them_again() {
    let _alone = crate::support::redis::alone().await;
    let mut admin = crate::support::redis::Admin::single(&crate::support::redis::url()).await;
    let store = single(&prefix()).build().unwrap();
    let mut flush = async || admin.command::<()>(&["SCRIPT", "FLUSH", "SYNC"]).await;
    flush().await;
    let mut claim = claimed(&store, "flushed").await;
    flush().await;
    claim.renew().await.unwrap();
    flush().await;
    claim.control().unwrap().dispatching().await.unwrap();
    flush().await;
    claim.settle(commit("done")).await.unwrap();
    flush().await;
    assert!(matches!(store.claim(&request("flushed", 1)).await, Ok(Verdict::Replay(_))));
}
