//! What operator calls must do, on stores that offer them (S8).

use std::time::Duration;

use super::Harness;
use super::lease::{control, done, lease};
use super::support::{
    answer, asked, claimed, completed, fingerprint, kept, lookup, name, replayed, request, settled, verdict,
};
use crate::lookup::Endpoint;
use crate::policy::State;
use crate::store::{Claim, ClaimRequest, Entry, Operate, Operated, Settlement};

async fn found<S: Operate>(store: &S, request: &ClaimRequest) -> Entry {
    let lookup = request.lookup();
    let mut entries = done(store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint()))).await;
    assert_eq!(entries.len(), 1, "one record has this look-up key");
    entries.remove(0)
}

/// A completed record is found by its key, under each endpoint that has one.
pub async fn a_key_is_found_under_every_endpoint<H: Harness<Store: Operate>>(harness: &H) {
    let store = harness.store().await;
    for endpoint in ["POST /a", "POST /b"] {
        completed(&store, &asked(lookup("kit", "found", endpoint), fingerprint(1, 1)), answer(endpoint)).await;
    }
    completed(&store, &asked(lookup("other", "found", "POST /a"), fingerprint(1, 1)), answer("other")).await;
    let (one, two) = (lookup("kit", "found", "POST /a"), lookup("kit", "found", "POST /b"));
    for lookup in [&one, &two] {
        let entry = found(&store, &asked(lookup.clone(), fingerprint(1, 1))).await;
        assert_eq!((entry.state, &entry.lookup), (State::Completed, lookup));
        assert_eq!(entry.status, Some(http::StatusCode::CREATED));
        assert!(entry.expires_in > Duration::from_secs(3000) && entry.age < Duration::from_secs(60));
    }
    let absent = Endpoint::named("POST /c");
    assert!(done(store.find(one.scope(), one.key(), Some(&absent))).await.is_empty());
    match store.find(one.scope(), one.key(), None).await {
        Ok(entries) => assert_eq!(entries.len(), 2),
        // A store may have to be told the endpoint.
        Err(error) => assert_eq!(error.kind(), crate::ErrorKind::Setup),
    }
}

/// No call takes a key from an attempt that is alive (case L21).
pub async fn a_running_key_is_left_alone<H: Harness<Store: Operate>>(harness: &H) {
    let store = harness.store().await;
    let asked = request("alive", 1);
    let claim = claimed(&store, &asked).await;
    let lookup = asked.lookup();
    for entry in done(store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint()))).await {
        assert_eq!(entry.state, State::Running);
        assert_eq!(done(store.release(&entry)).await, Operated::InProgress);
        assert_eq!(done(store.settle_as(&entry, kept(answer("operator")))).await, Operated::InProgress);
        assert_eq!(done(store.forget(&entry)).await, Operated::InProgress);
    }
    assert_eq!(name(&verdict(&store, &asked).await), "in progress");
    settled(claim, Settlement::Commit(kept(answer("owner")))).await;
    assert_eq!(replayed(&store, &asked).await.answer, answer("owner"));
}

/// Whoever has decided about a running key has not decided about the answer that it has by now.
pub async fn an_answer_that_was_not_seen_is_not_forgotten<H: Harness<Store: Operate>>(harness: &H) {
    let store = harness.store().await;
    let asked = request("answered meanwhile", 1);
    let claim = claimed(&store, &asked).await;
    let lookup = asked.lookup();
    let seen = done(store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint()))).await;
    settled(claim, Settlement::Commit(kept(answer("owner")))).await;
    for entry in seen {
        for operated in [
            done(store.forget(&entry)).await,
            done(store.release(&entry)).await,
            done(store.settle_as(&entry, kept(answer("operator")))).await,
        ] {
            assert_ne!(operated, Operated::Done);
        }
    }
    assert_eq!(replayed(&store, &asked).await.answer, answer("owner"));
}

/// A completed record can be forgotten, and neither released nor settled again (case O07).
pub async fn a_completed_record_is_forgotten_only<H: Harness<Store: Operate>>(harness: &H) {
    let store = harness.store().await;
    let asked = request("completed", 1);
    completed(&store, &asked, answer("done")).await;
    let entry = found(&store, &asked).await;
    assert_eq!(done(store.release(&entry)).await, Operated::Changed);
    assert_eq!(done(store.settle_as(&entry, kept(answer("operator")))).await, Operated::Changed);
    assert_eq!(replayed(&store, &asked).await.answer, answer("done"));
    assert_eq!(done(store.forget(&entry)).await, Operated::Done);
    assert_eq!(done(store.forget(&entry)).await, Operated::Changed, "safe to repeat");
    completed(&store, &request("completed", 2), answer("anew")).await;
}

/// An entry that was read before the record changed changes nothing.
pub async fn a_record_that_has_moved_on_is_left_alone<H: Harness<Store: Operate>>(harness: &H) {
    let store = harness.store().await;
    let asked = request("moved on", 1);
    completed(&store, &asked, answer("first")).await;
    let entry = found(&store, &asked).await;
    assert_eq!(done(store.forget(&entry)).await, Operated::Done);
    completed(&store, &asked, answer("second")).await;
    assert_eq!(done(store.forget(&entry)).await, Operated::Changed);
    assert_eq!(replayed(&store, &asked).await.answer, answer("second"));
}

/// A lease whose attempt stopped after a call to somebody else.
async fn unknown<H: Harness<Store: Operate>>(harness: &H, key: &str) -> Option<(H::Store, ClaimRequest, Entry)> {
    let (store, claim) = lease(harness, key).await?;
    done(control(&claim).dispatching()).await;
    drop(claim);
    harness.end_leases().await;
    let asked = request(key, 1);
    let entry = found(&store, &asked).await;
    assert_eq!((entry.state, entry.attempt, entry.lease_left), (State::Unknown, 1, None));
    Some((store, asked, entry))
}

/// An unknown key is among those that wait for somebody; a completed one is not.
pub async fn what_waits_for_somebody_is_listed<H: Harness<Store: Operate>>(harness: &H) {
    let Some((store, asked, _)) = unknown(harness, "listed").await else { return };
    completed(&store, &request("not listed", 1), answer("done")).await;
    let stuck = done(store.list_stuck(Duration::from_secs(3600), 100)).await;
    assert_eq!(stuck.iter().map(|entry| &entry.lookup).collect::<Vec<_>>(), [asked.lookup()]);
    assert!(done(store.list_stuck(Duration::from_secs(3600), 0)).await.is_empty());
    let _running = claimed(&store, &request("running", 1)).await;
    assert_eq!(done(store.list_stuck(Duration::ZERO, 100)).await.len(), 2);
    assert_eq!(done(store.list_stuck(Duration::from_secs(3600), 100)).await.len(), 1);
}

/// Released, an unknown key runs again, as the next attempt and with a larger fence (case L21).
pub async fn an_unknown_key_is_released<H: Harness<Store: Operate>>(harness: &H) {
    let Some((store, asked, entry)) = unknown(harness, "released").await else { return };
    assert_eq!(done(store.release(&entry)).await, Operated::Done);
    let claim = claimed(&store, &asked).await;
    assert_eq!(claim.attempt(), 2);
    assert!(claim.fence() > entry.fence, "the fence must grow over a release");
    assert_eq!(done(store.release(&entry)).await, Operated::Changed);
    settled(claim, Settlement::Commit(kept(answer("second attempt")))).await;
    assert_eq!(replayed(&store, &asked).await.answer, answer("second attempt"));
}

/// Settled, it gives the operator's answer, and its owner comes too late.
pub async fn an_unknown_key_is_settled<H: Harness<Store: Operate>>(harness: &H) {
    let Some((store, claim)) = lease(harness, "settled").await else { return };
    done(control(&claim).dispatching()).await;
    harness.end_leases().await;
    let asked = request("settled", 1);
    let entry = found(&store, &asked).await;
    assert_eq!(done(store.settle_as(&entry, kept(answer("operator")))).await, Operated::Done);
    assert_eq!(replayed(&store, &asked).await.answer, answer("operator"));
    match claim.settle(Settlement::Commit(kept(answer("owner")))).await {
        Err(error) => assert_eq!(error.kind(), crate::ErrorKind::LeaseLost),
        Ok(_) => panic!("the operator's answer is final"),
    }
    assert_eq!(replayed(&store, &asked).await.answer, answer("operator"));
    assert_eq!(name(&verdict(&store, &request("settled", 2)).await), "mismatch");
}

/// Runs the properties of operator calls against one store: as `store_conformance!`.
#[macro_export]
macro_rules! operator_conformance {
    ($name:ident, $harness:expr) => {
        $crate::store_conformance!(@tests $name, $harness;
            a_key_is_found_under_every_endpoint
            a_running_key_is_left_alone
            an_answer_that_was_not_seen_is_not_forgotten
            a_completed_record_is_forgotten_only
            a_record_that_has_moved_on_is_left_alone
            what_waits_for_somebody_is_listed
            an_unknown_key_is_released
            an_unknown_key_is_settled
        );
    };
}
