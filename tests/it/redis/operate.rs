//! Operators' calls (S8, case L21).

use std::time::Duration;

use idempotency::policy::State;
use idempotency::store::{
    Claim, ClaimRequest, Entry, Fence, Kept, Operate, Operated, RedisClaim, RedisStore, Settlement, Store, Verdict,
};
use idempotency::testing::store::{Harness, answer, completed, request};
use idempotency::{ErrorKind, LookupKey};

use crate::support::counters::Counters;
use crate::support::redis::{RedisHarness, kind};

async fn claimed(store: &RedisStore, asked: &ClaimRequest) -> RedisClaim {
    match store.claim(&asked.again()).await.unwrap() {
        Verdict::Claimed(claim) => claim,
        other => panic!("not claimed: {other:?}"),
    }
}

async fn found(store: &RedisStore, lookup: &LookupKey) -> Entry {
    let mut entries = store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint())).await.unwrap();
    assert_eq!(entries.len(), 1);
    entries.pop().unwrap()
}

/// A key whose attempt has called somebody else and stopped; its claim comes back later, perhaps.
async fn unknown(store: &RedisStore, key: &str) -> (RedisClaim, Entry) {
    let claim = claimed(store, &request(key, 1)).await;
    let control = claim.control().unwrap();
    control.dispatching().await.unwrap();
    control.record(Settlement::Unknown).await.unwrap();
    let entry = found(store, request(key, 1).lookup()).await;
    assert_eq!(entry.state, State::Unknown);
    (claim, entry)
}

fn kept(text: &str) -> Kept {
    Kept { answer: answer(text), retention: Duration::from_secs(3600) }
}

#[tokio::test]
async fn a_record_is_found_as_it_is() {
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let asked = request("shown", 1);
    let lookup = asked.lookup().clone();
    assert!(store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint())).await.unwrap().is_empty());
    let claim = claimed(&store, &asked).await;
    let entry = found(&store, &lookup).await;
    assert_eq!((entry.state, entry.attempt, entry.fence), (State::Running, 1, claim.fence()));
    assert_eq!(entry.lookup, lookup);
    assert!(entry.lease_left.is_some_and(|left| left > Duration::ZERO && left <= claim.lease().unwrap()));
    assert!(entry.age < Duration::from_secs(5) && entry.expires_in > Duration::from_secs(3500));
    claim.settle(Settlement::Commit(kept("done"))).await.unwrap();
    let entry = found(&store, &lookup).await;
    assert_eq!((entry.state, entry.lease_left), (State::Completed, None));
    assert_eq!(entry.status, Some(answer("").status));
    // The name of a record is a digest with the endpoint in it.
    assert_eq!(kind(store.find(lookup.scope(), lookup.key(), None).await), ErrorKind::Setup);
}

// S8: nothing is taken from an attempt that is alive.
#[tokio::test]
async fn a_running_key_is_left_alone() {
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let claim = claimed(&store, &request("running", 1)).await;
    let entry = found(&store, request("running", 1).lookup()).await;
    assert_eq!(store.release(&entry).await.unwrap(), Operated::InProgress);
    assert_eq!(store.settle_as(&entry, kept("no")).await.unwrap(), Operated::InProgress);
    assert_eq!(store.forget(&entry).await.unwrap(), Operated::InProgress);
    claim.settle(Settlement::Commit(kept("done"))).await.unwrap();
    // Completed now: only to be forgotten.
    assert_eq!(store.release(&entry).await.unwrap(), Operated::Changed);
    assert_eq!(store.settle_as(&entry, kept("no")).await.unwrap(), Operated::Changed);
    assert_eq!(store.forget(&entry).await.unwrap(), Operated::Changed, "its answer was not seen");
    let entry = found(&store, request("running", 1).lookup()).await;
    assert_eq!(store.forget(&entry).await.unwrap(), Operated::Done);
    assert_eq!(store.forget(&entry).await.unwrap(), Operated::Changed);
    let next = claimed(&store, &request("running", 2)).await;
    assert!(next.fence() > entry.fence && next.attempt() == 1);
}

// S8, case L21: freed, as the next attempt, and whoever stopped has no say any more.
#[tokio::test]
async fn a_released_key_runs_again() {
    let counters = Counters::default();
    let _guard = counters.install();
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let (zombie, entry) = unknown(&store, "released").await;
    for _ in 0..2 {
        assert_eq!(store.release(&entry).await.unwrap(), Operated::Done, "safe to repeat");
    }
    assert_eq!(counters.of("operator_released"), 2);
    assert_eq!(found(&store, request("released", 1).lookup()).await.state, State::Lapsed);
    assert_eq!(kind(zombie.settle(Settlement::Commit(kept("zombie"))).await), ErrorKind::LeaseLost);
    let next = claimed(&store, &request("released", 1)).await;
    assert_eq!((next.attempt(), next.fence() > entry.fence), (2, true));
    assert_eq!(store.release(&entry).await.unwrap(), Operated::Changed, "it has moved on");
}

#[tokio::test]
async fn a_settled_key_gives_the_operators_answer() {
    let counters = Counters::default();
    let _guard = counters.install();
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let (zombie, entry) = unknown(&store, "settled").await;
    for _ in 0..2 {
        assert_eq!(store.settle_as(&entry, kept("it was done")).await.unwrap(), Operated::Done, "safe to repeat");
    }
    assert_eq!(store.settle_as(&entry, kept("it was not")).await.unwrap(), Operated::Changed);
    assert_eq!(counters.of("operator_settled"), 2);
    assert_eq!(kind(zombie.settle(Settlement::Commit(kept("zombie"))).await), ErrorKind::LeaseLost);
    let Verdict::Replay(record) = store.claim(&request("settled", 1)).await.unwrap() else { panic!("no replay") };
    assert_eq!(record.answer, answer("it was done"));
    assert!(matches!(store.claim(&request("settled", 2)).await, Ok(Verdict::Mismatch)));
}

#[tokio::test]
async fn an_entry_of_another_attempt_changes_nothing() {
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let first = claimed(&store, &request("moved on", 1)).await;
    let entry = found(&store, request("moved on", 1).lookup()).await;
    drop(first);
    harness.end_leases().await;
    let second = claimed(&store, &request("moved on", 1)).await;
    harness.end_leases().await;
    for done in [store.release(&entry).await, store.settle_as(&entry, kept("no")).await, store.forget(&entry).await] {
        assert_eq!(done.unwrap(), Operated::Changed);
    }
    second.settle(Settlement::Commit(kept("second"))).await.unwrap();
}

// S8: on one server and on all nodes of a cluster; the oldest first, within the limit; other prefixes are others'.
#[tokio::test]
async fn what_waits_for_somebody_is_listed() {
    for harness in [RedisHarness::single().await, RedisHarness::cluster().await] {
        let store = harness.store().await;
        let mut admin = harness.admin.clone();
        let now = admin.now().await;
        let mut claims = Vec::new();
        for number in 0..30_u64 {
            let asked = request(&format!("stuck {number}"), 1);
            claims.push(claimed(&store, &asked).await);
            let name = harness.record(asked.lookup());
            admin.hset(&name, "a", now - number * 1_000_000).await;
            // A third lapsed, a third unknown, a third still running.
            if number % 3 != 2 {
                admin.hset(&name, "l", 1).await;
                admin.hset(&name, "h", number % 3).await;
            }
        }
        completed(&store, &request("done", 1), answer("done")).await;
        let all = store.list_stuck(Duration::from_secs(15), 100).await.unwrap();
        let running = all.iter().filter(|entry| entry.state == State::Running).count();
        let count = |state| all.iter().filter(|entry| entry.state == state).count();
        assert_eq!((count(State::Lapsed), count(State::Unknown), running), (10, 10, 5), "17, 20, 23, 26, 29 s old");
        assert!(all.is_sorted_by(|one, other| one.age >= other.age));
        let oldest = store.list_stuck(Duration::from_secs(15), 3).await.unwrap();
        let keys: Vec<_> = oldest.iter().map(|entry| entry.lookup.clone()).collect();
        let expected: Vec<_> = [29, 28, 27].map(|n| request(&format!("stuck {n}"), 1).lookup().clone()).into();
        assert_eq!(keys, expected);
        assert_eq!(store.release(&oldest[2]).await.unwrap(), Operated::Done);
        assert!(oldest.iter().all(|entry| entry.fence > Some(Fence(0))));
        let other = harness.builder().prefix(format!("{}*", &harness.prefix[..10])).build().unwrap();
        assert!(other.list_stuck(Duration::ZERO, 100).await.unwrap().is_empty());
    }
}
