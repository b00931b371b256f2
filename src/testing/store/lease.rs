//! What lease stores must do besides. A transactional store has no lease: these hold for it trivially.

use std::future::Future;
use std::sync::Arc;

use super::Harness;
use super::support::{answer, claimed, kept, name, replayed, request, settled, verdict};
use crate::error::ErrorKind;
use crate::store::{Claim, LeaseControl, OnUnknown, Settlement, Store};

/// The first claim of a key, if the store works by leases.
pub(super) async fn lease<H: Harness>(harness: &H, key: &str) -> Option<(H::Store, <H::Store as Store>::Claim)> {
    let store = harness.store().await;
    let claim = claimed(&store, &request(key, 1)).await;
    // Without these the layer would renew nothing, and this kit would look at nothing.
    let is_lease = claim.fence().is_some() && claim.lease().is_some();
    assert!(H::FREES_ON_DROP || is_lease, "a key that a drop does not free is held by a lease, with a fence");
    is_lease.then_some((store, claim))
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

/// An attempt that has called somebody else and stopped is followed by nobody (S21, S22; cases L03, T16).
pub async fn a_dispatched_attempt_that_stops_is_held<H: Harness>(harness: &H) {
    let Some((store, claim)) = lease(harness, "dispatched").await else { return };
    done(control(&claim).dispatching()).await;
    assert_eq!(name(&verdict(&store, &request("dispatched", 1)).await), "in progress", "it runs");
    drop(claim);
    harness.end_leases().await;
    for _ in 0..2 {
        assert_eq!(name(&verdict(&store, &request("dispatched", 1)).await), "unknown");
    }
}

/// A mismatch outranks the held key too (H21), and its owner may still come back and settle it.
pub async fn a_held_key_is_not_run_again_and_another_request_is_still_told_so<H: Harness>(harness: &H) {
    let Some((store, claim)) = lease(harness, "held").await else { return };
    done(control(&claim).dispatching()).await;
    harness.end_leases().await;
    assert_eq!(name(&verdict(&store, &request("held", 2)).await), "mismatch");
    assert_eq!(name(&verdict(&store, &request("held", 1)).await), "unknown");
    settled(claim, Settlement::Commit(kept(answer("late")))).await;
    assert_eq!(replayed(&store, &request("held", 1)).await.answer, answer("late"));
}

/// `Rerun` runs again whatever the last attempt did; `Hold` holds whatever it did not (S21).
pub async fn what_follows_a_stop_is_the_stores_choice<H: Harness>(harness: &H) {
    for (on_unknown, dispatched, told) in [
        (OnUnknown::HoldDispatched, false, "claimed"),
        (OnUnknown::HoldDispatched, true, "unknown"),
        (OnUnknown::Rerun, false, "claimed"),
        (OnUnknown::Rerun, true, "claimed"),
        (OnUnknown::Hold, false, "unknown"),
        (OnUnknown::Hold, true, "unknown"),
    ] {
        let Some(store) = harness.store_on_unknown(on_unknown).await else { return };
        let asked = request(&format!("{on_unknown:?} {dispatched}"), 1);
        let claim = claimed(&store, &asked).await;
        if dispatched {
            done(control(&claim).dispatching()).await;
        }
        drop(claim);
        harness.end_leases().await;
        assert_eq!(name(&verdict(&store, &asked).await), told, "{on_unknown:?}, dispatched: {dispatched}");
    }
}

/// Nobody has to wait for the lease of an attempt that says itself that its outcome is not known.
pub async fn an_unknown_outcome_ends_the_lease_at_once<H: Harness>(harness: &H) {
    let Some((store, claim)) = lease(harness, "unknown").await else { return };
    let control = control(&claim);
    done(control.dispatching()).await;
    settled(claim, Settlement::Unknown).await;
    assert_eq!(name(&verdict(&store, &request("unknown", 1)).await), "unknown");
    let Some((store, claim)) = lease(harness, "unknown, not dispatched").await else { return };
    settled(claim, Settlement::Unknown).await;
    let again = claimed(&store, &request("unknown, not dispatched", 1)).await;
    assert_eq!(again.attempt(), 2);
}

/// The end of an attempt whose settlement was lost is recorded afterwards, and stays what it is (H35, case L22).
pub async fn an_end_is_recorded_late_once_and_by_its_owner_only<H: Harness>(harness: &H) {
    let commit = |text: &str| Settlement::Commit(kept(answer(text)));
    let Some((store, claim)) = lease(harness, "late").await else { return };
    let late = control(&claim);
    drop(claim);
    for text in ["first", "again, since the answer to the first call was lost"] {
        done(late.record(commit(text))).await;
    }
    assert_eq!(replayed(&store, &request("late", 1)).await.answer, answer("first"));
    let Some((store, stale)) = lease(harness, "too late").await else { return };
    let late = control(&stale);
    harness.end_leases().await;
    let owner = claimed(&store, &request("too late", 1)).await;
    is_lost(late.record(commit("stale"))).await;
    is_lost(late.dispatching()).await;
    settled(owner, commit("owner")).await;
    is_lost(late.record(commit("stale"))).await;
    assert_eq!(replayed(&store, &request("too late", 1)).await.answer, answer("owner"));
}

pub(super) fn control<C: Claim>(claim: &C) -> Arc<dyn LeaseControl> {
    claim.control().unwrap_or_else(|| panic!("a lease has a control"))
}

pub(super) async fn done<T>(step: impl Future<Output = Result<T, crate::Error>>) -> T {
    match step.await {
        Ok(done) => done,
        Err(error) => panic!("it failed: {error:?}"),
    }
}

async fn is_lost<T>(ended: impl Future<Output = Result<T, crate::Error>>) {
    match ended.await {
        Ok(_) => panic!("a stale owner was let through"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::LeaseLost),
    }
}
