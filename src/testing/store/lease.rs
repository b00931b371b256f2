//! What lease stores must do besides. A transactional store has no lease: these hold for it trivially.

use std::future::Future;

use super::Harness;
use super::support::{answer, claimed, kept, name, replayed, request, settled, verdict};
use crate::error::ErrorKind;
use crate::store::{Claim, Settlement, Store};

/// The first claim of a key, if the store works by leases.
async fn lease<H: Harness>(harness: &H, key: &str) -> Option<(H::Store, <H::Store as Store>::Claim)> {
    let store = harness.store().await;
    let claim = claimed(&store, &request(key, 1)).await;
    (claim.fence().is_some()).then_some((store, claim))
}

/// Takes the key over from an owner that is gone, with a larger fence and the next attempt number: also a lease of
/// the same length as the new one (S21, cases L01 and L10).
pub async fn a_lease_that_ends_is_taken_over_with_a_larger_fence<H: Harness>(harness: &H) {
    let Some((store, first)) = lease(harness, "taken over").await else { return };
    let (fence, attempt) = (first.fence(), first.attempt());
    assert_eq!(attempt, 1);
    harness.end_leases().await;
    // A mismatch is told all the same: the key is still the first request's.
    assert_eq!(name(&verdict(&store, &request("taken over", 2)).await), "mismatch");
    let second = claimed(&store, &request("taken over", 1)).await;
    assert!(second.fence() > fence, "the fence must grow");
    assert_eq!(second.attempt(), 2);
    drop(first);
    settled(second, Settlement::Abandon).await;
    let third = claimed(&store, &request("taken over", 1)).await;
    assert!(third.fence() > fence, "the fence must grow over a release");
}

/// Every way in which an owner that has lost its lease may end changes nothing and says so (S3; cases L12, L13,
/// D05, D06).
pub async fn a_stale_owner_changes_nothing<H: Harness>(harness: &H) {
    for (key, settlement) in [
        ("stale commit", Settlement::Commit(kept(answer("stale")))),
        ("stale refuse", Settlement::Refuse(kept(answer("stale")))),
        ("stale abandon", Settlement::Abandon),
    ] {
        let Some((store, stale)) = lease(harness, key).await else { return };
        harness.end_leases().await;
        let owner = claimed(&store, &request(key, 1)).await;
        is_lost(stale.settle(settlement)).await;
        assert_eq!(name(&verdict(&store, &request(key, 1)).await), "in progress");
        settled(owner, Settlement::Commit(kept(answer("owner")))).await;
        assert_eq!(replayed(&store, &request(key, 1)).await.answer, answer("owner"));
    }
    let Some((store, mut stale)) = lease(harness, "stale renewal").await else { return };
    harness.end_leases().await;
    let _owner = claimed(&store, &request("stale renewal", 1)).await;
    is_lost(stale.renew()).await;
}

/// A lease that is renewed outlasts its length (case L14).
pub async fn a_renewed_lease_does_not_end<H: Harness>(harness: &H) {
    let Some((store, mut claim)) = lease(harness, "renewed").await else { return };
    harness.end_leases().await;
    // Nobody has taken it over: the renewal revives it.
    match claim.renew().await {
        Ok(()) => {}
        Err(error) => panic!("the renewal failed: {error:?}"),
    }
    assert_eq!(name(&verdict(&store, &request("renewed", 1)).await), "in progress");
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
    assert_eq!(replayed(&store, &request("renewed", 1)).await.answer, answer("done"));
}

async fn is_lost<T>(ended: impl Future<Output = Result<T, crate::Error>>) {
    match ended.await {
        Ok(_) => panic!("a stale owner was let through"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::LeaseLost),
    }
}
