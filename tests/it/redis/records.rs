//! What is kept, and for how long.

use std::time::Duration;

use bytes::Bytes;
use idempotency::fingerprint::{Fingerprint, Profile};
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Claim, ClaimRequest, Fence, Kept, RedisClaim, RedisStore, Settlement, Store, Verdict};
use idempotency::testing::store::{Harness, answer, completed, request};
use idempotency::{Endpoint, Key, LookupKey, ScopeId};

use crate::support::redis::{LEASE, RedisHarness};

async fn claimed(store: &RedisStore, asked: &ClaimRequest) -> RedisClaim {
    match store.claim(&asked.again()).await.unwrap() {
        Verdict::Claimed(claim) => claim,
        other => panic!("not claimed: {other:?}"),
    }
}

fn asked(retention: Duration) -> ClaimRequest {
    let fingerprint = Fingerprint::new(Profile::from_bytes([1; 8]), [1; 32]);
    ClaimRequest::new(request("kept", 1).lookup().clone(), fingerprint, retention)
}

// S5, S25, H44: retention from acceptance, at least 60 s from the end, and two leases while it runs.
#[tokio::test]
async fn a_record_is_kept_as_long_as_it_must_be() {
    for (retention, running, completed) in [
        (Duration::from_secs(3600), 3600, 3600),
        (Duration::from_secs(1), 2 * LEASE.as_secs(), 60),
        (Duration::ZERO, 2 * LEASE.as_secs(), 60),
    ] {
        let harness = RedisHarness::single().await;
        let (store, mut admin) = (harness.store().await, harness.admin.clone());
        let name = harness.record(asked(retention).lookup());
        let mut left = async || {
            let left: u64 = admin.command(&["PTTL", &name]).await;
            // To the nearest second: the server's milliseconds are rounded up.
            (left + 500) / 1000
        };
        let mut claim = claimed(&store, &asked(retention)).await;
        assert_eq!(left().await, running);
        claim.renew().await.unwrap();
        assert_eq!(left().await, running);
        claim.settle(Settlement::Commit(Kept { answer: answer("done"), retention })).await.unwrap();
        assert_eq!(left().await, completed);
    }
}

// S25: exact to the microsecond, though Lua's numbers would be cut by its own concatenation.
#[tokio::test]
async fn a_fence_is_the_servers_clock_and_never_smaller_than_the_last_one() {
    let harness = RedisHarness::single().await;
    let (store, mut admin) = (harness.store().await, harness.admin.clone());
    let name = harness.record(asked(LEASE).lookup());
    let before = admin.now().await;
    let claim = claimed(&store, &asked(LEASE)).await;
    let Some(Fence(first)) = claim.fence() else { panic!("no fence") };
    assert!(before <= first && first <= admin.now().await);
    assert_eq!(admin.hget(&name, "e").await, Some(first.to_string()));
    // The server's clock steps back an hour: taken over, released, expired, the fence grows.
    let ahead = first + 3_600_000_000;
    admin.hset(&name, "e", ahead).await;
    admin.hset(&name, "l", 1).await;
    let taken_over = claimed(&store, &asked(LEASE)).await;
    assert_eq!(taken_over.fence(), Some(Fence(ahead + 1)));
    assert_eq!(admin.hget(&name, "e").await, Some((ahead + 1).to_string()));
    taken_over.settle(Settlement::Abandon).await.unwrap();
    let released = claimed(&store, &asked(LEASE)).await;
    assert_eq!((released.fence(), released.attempt()), (Some(Fence(ahead + 2)), 1));
    released.settle(Settlement::Commit(Kept { answer: answer("done"), retention: LEASE })).await.unwrap();
    harness.expire(asked(LEASE).lookup()).await;
    assert_eq!(claimed(&store, &asked(LEASE)).await.fence(), Some(Fence(ahead + 3)));
}

// S25: read by a call of its own, whole.
#[tokio::test]
async fn an_answer_of_eight_mebibytes_comes_back() {
    for harness in [RedisHarness::single().await, RedisHarness::cluster().await] {
        let store = harness.store().await;
        let body: Vec<u8> = (0..8_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let stored = Answer { body: AnswerBody::Kept(Bytes::from(body)), ..answer("") };
        completed(&store, &request("large", 1), stored.clone()).await;
        let Verdict::Replay(record) = store.claim(&request("large", 1)).await.unwrap() else { panic!("no replay") };
        assert!(record.answer == stored);
    }
}

// H7, H12: names are digests, so no byte of a key or a scope means anything to the server.
#[tokio::test]
async fn keys_and_scopes_of_any_bytes_are_apart() {
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let fingerprint = Fingerprint::new(Profile::from_bytes([1; 8]), [1; 32]);
    let mut number = 0;
    for scope in ["{a}", "}{", "a\0b", "a\r\nb", "*", "\u{1F600}", "\u{fffd}"] {
        for key in ["{k}", "k\\", "*", "k\"'"] {
            number += 1;
            let lookup =
                LookupKey::new(ScopeId::new(scope).unwrap(), Key::new(key).unwrap(), Endpoint::named("POST /\0{}"));
            let asked = ClaimRequest::new(lookup, fingerprint, Duration::from_secs(60));
            completed(&store, &asked, answer(&number.to_string())).await;
            let Verdict::Replay(record) = store.claim(&asked.again()).await.unwrap() else { panic!("no replay") };
            assert_eq!(record.answer, answer(&number.to_string()));
        }
    }
    assert_eq!(harness.records().await, number);
}
