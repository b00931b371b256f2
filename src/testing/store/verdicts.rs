//! What a store says to a second request.

use std::time::Duration;

use super::Harness;
use super::support::{
    answer, asked, claimed, claimed_soon, completed, fingerprint, kept, name, replayed, request, settled, verdict,
};
use crate::fingerprint::Fingerprint;
use crate::record::AnswerBody;
use crate::store::{Settlement, Store, Verdict};

/// The way of every operation: claimed once, answered, replayed to everybody.
pub async fn a_fresh_key_is_claimed_and_its_answer_replayed<H: Harness>(harness: &H) {
    let (one, other) = (harness.store().await, harness.store().await);
    let request = request("fresh", 1);
    completed(&one, &request, answer("done")).await;
    for store in [&one, &other, &one] {
        assert_eq!(replayed(store, &request).await.answer, answer("done"));
    }
}

/// A refusal is an answer (H31).
pub async fn a_refusal_is_replayed<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let request = request("refused", 1);
    settled(claimed(&store, &request).await, Settlement::Refuse(kept(answer("no")))).await;
    assert_eq!(replayed(&store, &request).await.answer.body, AnswerBody::Kept("no".into()));
}

/// Abandoned: nothing is kept, and an immediate retry runs (H31, S10).
pub async fn an_abandoned_key_is_free_at_once<H: Harness>(harness: &H) {
    let (one, other) = (harness.store().await, harness.store().await);
    let request = request("abandoned", 1);
    for _ in 0..3 {
        settled(claimed(&one, &request).await, Settlement::Abandon).await;
        settled(claimed(&other, &request).await, Settlement::Abandon).await;
    }
    // Another request may use it, too: nothing is left of the first.
    settled(claimed(&one, &super::request("abandoned", 2)).await, Settlement::Abandon).await;
}

/// 409 while the first is running (H20, cases C05, C10, C11).
pub async fn a_running_key_is_in_progress<H: Harness>(harness: &H) {
    let (one, other) = (harness.store().await, harness.store().await);
    let request = request("running", 1);
    let claim = claimed(&one, &request).await;
    for store in [&one, &other] {
        assert_eq!(name(&verdict(store, &request).await), "in progress");
    }
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
}

/// 422 before 409 (H21, case C12): also while the first is running.
pub async fn a_mismatch_outranks_in_progress<H: Harness>(harness: &H) {
    let (one, other) = (harness.store().await, harness.store().await);
    let claim = claimed(&one, &request("outranks", 1)).await;
    for store in [&one, &other] {
        assert_eq!(name(&verdict(store, &request("outranks", 2)).await), "mismatch");
        assert_eq!(name(&verdict(store, &request("outranks", 1)).await), "in progress");
    }
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
}

/// 422 after the first is done: whoever comes late is told what is there, not that there is nothing (case C13).
pub async fn a_completed_key_with_another_request_is_a_mismatch<H: Harness>(harness: &H) {
    let (one, other) = (harness.store().await, harness.store().await);
    completed(&one, &request("reused", 1), answer("done")).await;
    for store in [&one, &other] {
        assert_eq!(name(&verdict(store, &request("reused", 2)).await), "mismatch");
        assert_eq!(name(&verdict(store, &request("reused", 1)).await), "replay");
    }
}

/// Two requests that differ in one bit anywhere are two requests (case D07). While the first one runs a store may look at
/// a part of it only; it is in doubt then, and gives nothing away.
pub async fn every_bit_of_a_fingerprint_counts<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let lookup = request("bits", 1).lookup().clone();
    let first = fingerprint(1, 1);
    let others = (0..32).map(|byte| {
        let mut digest = *first.digest();
        digest[byte] ^= 1 << (byte % 8);
        asked(lookup.clone(), Fingerprint::new(first.profile(), digest))
    });
    let others: Vec<_> = others.collect();
    let claim = claimed(&store, &asked(lookup.clone(), first)).await;
    for other in &others {
        assert!(["mismatch", "in progress"].contains(&name(&verdict(&store, other).await)));
    }
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
    for other in &others {
        assert_eq!(name(&verdict(&store, other).await), "mismatch");
    }
    assert_eq!(name(&verdict(&store, &asked(lookup, first)).await), "replay");
}

/// A fingerprint made in another way cannot be compared: never a mismatch (H18), running or done.
pub async fn another_profile_counts_as_a_match<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let lookup = request("profiles", 1).lookup().clone();
    let (old, new) = (asked(lookup.clone(), fingerprint(1, 1)), asked(lookup, fingerprint(2, 9)));
    let claim = claimed(&store, &old).await;
    assert_eq!(name(&verdict(&store, &new).await), "in progress");
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
    assert_eq!(name(&verdict(&store, &new).await), "replay");
}

/// A request that was computed in the stored profile too is compared in it (H18). While the first one runs a store may
/// not be able to, but an honest retry is in progress all the same.
pub async fn a_request_is_compared_in_the_stored_profile<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let lookup = request("previous", 1).lookup().clone();
    let old = asked(lookup.clone(), fingerprint(1, 1));
    let new = |body| asked(lookup.clone(), fingerprint(2, body)).with_previous(vec![fingerprint(1, body)]);
    let claim = claimed(&store, &old).await;
    assert_eq!(name(&verdict(&store, &new(1)).await), "in progress");
    assert!(["mismatch", "in progress"].contains(&name(&verdict(&store, &new(2)).await)));
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
    assert_eq!(name(&verdict(&store, &new(2)).await), "mismatch");
    assert_eq!(replayed(&store, &new(1)).await.fingerprint, *old.fingerprint(), "the record stays as it is");
}

/// Whoever asks for a running key is told at once (case C29).
pub async fn a_claim_never_waits_for_a_rival<H: Harness>(harness: &H) {
    let (one, other) = (harness.store().await, harness.store().await);
    let request = request("waits", 1);
    let claim = claimed(&one, &request).await;
    let told = tokio::time::timeout(Duration::from_secs(2), other.claim(&request.again())).await;
    assert!(matches!(told, Ok(Ok(Verdict::InProgress { .. }))), "a rival waits, or is told something else");
    settled(claim, Settlement::Abandon).await;
}

/// Dropping a claim publishes nothing, and the key is free: at once, or when the lease ends (cases L01, L04).
pub async fn a_dropped_claim_publishes_nothing<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let request = request("dropped", 1);
    drop(claimed(&store, &request).await);
    if !H::FREES_ON_DROP {
        assert_eq!(name(&verdict(&store, &request).await), "in progress");
        harness.end_leases().await;
    }
    settled(claimed_soon(&store, &request).await, Settlement::Commit(kept(answer("second")))).await;
    assert_eq!(replayed(&store, &request).await.answer, answer("second"));
}

/// Expired counts as absent for everyone at once, purged or not (H24, case L09).
pub async fn an_expired_record_counts_as_absent<H: Harness>(harness: &H) {
    let store = harness.store().await;
    completed(&store, &request("expired", 1), answer("old")).await;
    harness.expire(request("expired", 1).lookup()).await;
    // Another request may use it: the old fingerprint is gone with the rest.
    let fresh = request("expired", 2);
    completed(&store, &fresh, answer("new")).await;
    assert_eq!(replayed(&store, &fresh).await.answer, answer("new"));
}
