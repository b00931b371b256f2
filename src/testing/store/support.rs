//! Requests, answers and steps that the properties share.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::fingerprint::{Fingerprint, Profile};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::record::{Answer, AnswerBody, Record};
use crate::scope::ScopeId;
use crate::store::{Claim, ClaimRequest, Kept, Settled, Settlement, Store, Verdict};

pub(super) const RETENTION: Duration = Duration::from_secs(3600);

/// A claim of `key` by the request number `body`, in the scope `kit`.
///
/// # Panics
/// For what is not a key.
#[must_use]
pub fn request(key: &str, body: u8) -> ClaimRequest {
    asked(lookup("kit", key, "POST /kit"), fingerprint(1, body))
}

/// A small answer.
#[must_use]
pub fn answer(text: &str) -> Answer {
    Answer {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body: AnswerBody::Kept(Bytes::copy_from_slice(text.as_bytes())),
        trailers: None,
    }
}

/// Claims, commits `answer`, and panics if either does not work.
///
/// # Panics
/// If the key is not free.
pub async fn completed<S: Store>(store: &S, request: &ClaimRequest, answer: Answer) {
    settled(claimed(store, request).await, Settlement::Commit(kept(answer))).await;
}

pub(super) fn lookup(scope: &str, key: &str, endpoint: &str) -> LookupKey {
    let scope = ScopeId::new(scope).unwrap_or_else(ScopeId::shared);
    let key = Key::new(key).unwrap_or_else(|error| panic!("not a key: {error}"));
    LookupKey::new(scope, key, Endpoint::named(endpoint))
}

pub(super) fn fingerprint(profile: u8, body: u8) -> Fingerprint {
    // The first bytes differ too: a store may compare a few bits of them before the rest.
    Fingerprint::new(Profile::from_bytes([profile, 0, 0, 0, 0, 0, 0, 0]), [body; 32])
}

pub(super) fn asked(lookup: LookupKey, fingerprint: Fingerprint) -> ClaimRequest {
    ClaimRequest::new(lookup, fingerprint, RETENTION)
}

pub(super) fn kept(answer: Answer) -> Kept {
    Kept { answer, retention: RETENTION }
}

pub(super) async fn verdict<S: Store>(store: &S, request: &ClaimRequest) -> Verdict<S::Claim> {
    match store.claim(&request.again()).await {
        Ok(verdict) => verdict,
        Err(error) => panic!("the claim failed: {error:?}"),
    }
}

pub(super) async fn claimed<S: Store>(store: &S, request: &ClaimRequest) -> S::Claim {
    match verdict(store, request).await {
        Verdict::Claimed(claim) => claim,
        other => panic!("expected the claim, got {}", name(&other)),
    }
}

pub(super) async fn replayed<S: Store>(store: &S, request: &ClaimRequest) -> Record {
    match verdict(store, request).await {
        Verdict::Replay(record) => record,
        other => panic!("expected a replay, got {}", name(&other)),
    }
}

pub(super) async fn settled<C: Claim>(claim: C, settlement: Settlement) {
    match claim.settle(settlement).await {
        Ok(Settled::Recorded) => {}
        Ok(Settled::Superseded(other)) => panic!("superseded by {}", name(&other)),
        Err(error) => panic!("the settlement failed: {error:?}"),
    }
}

/// The verdict's name, for assertions: a claim need not be `Debug`.
pub(super) fn name<C>(verdict: &Verdict<C>) -> &'static str {
    match verdict {
        Verdict::Claimed(_) => "claimed",
        Verdict::Replay(_) => "replay",
        Verdict::InProgress { .. } => "in progress",
        Verdict::Mismatch => "mismatch",
        Verdict::Orphaned => "orphaned",
        Verdict::Unknown => "unknown",
    }
}

/// Claims again and again until the key is free, for at most five seconds.
pub(super) async fn claimed_soon<S: Store>(store: &S, request: &ClaimRequest) -> S::Claim {
    let until = tokio::time::Instant::now() + Duration::from_secs(5);
    loop {
        match verdict(store, request).await {
            Verdict::Claimed(claim) => return claim,
            other if tokio::time::Instant::now() > until => panic!("the key stays {}", name(&other)),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
