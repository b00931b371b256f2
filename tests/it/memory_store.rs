//! The memory store: the kit, and what only it does (S26).

use std::time::Duration;

use idempotency::store::{AnyStore, Claim, Count, OnUnknown, Operate, Purge, Settlement, Store, Verdict};
use idempotency::testing::ManualClock;
use idempotency::testing::store::{Harness, answer, completed, request};
use idempotency::{ErrorKind, LookupKey, MemoryStore};

const LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(3600);

struct MemoryHarness {
    store: MemoryStore,
    clock: ManualClock,
}

impl MemoryHarness {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self { store: MemoryStore::new().lease(LEASE).unwrap().clock(clock.clone()), clock }
    }
}

impl Harness for MemoryHarness {
    type Store = MemoryStore;

    const FREES_ON_DROP: bool = false;

    async fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    async fn expire(&self, _: &LookupKey) {
        self.clock.advance(RETENTION);
    }

    async fn records(&self) -> u64 {
        self.store.len() as u64
    }

    async fn store_on_unknown(&self, on_unknown: OnUnknown) -> Option<MemoryStore> {
        Some(self.store.clone().on_unknown(on_unknown))
    }

    async fn end_leases(&self) {
        self.clock.advance(LEASE);
    }
}

idempotency::store_conformance!(kit, async { MemoryHarness::new() });

idempotency::operator_conformance!(operators, async { MemoryHarness::new() });

// S8
#[tokio::test]
async fn records_are_counted_by_their_states() {
    let MemoryHarness { store, clock } = MemoryHarness::new();
    let exactly = |number| Some(Count::Exactly(number));
    let Verdict::Claimed(_running) = store.claim(&request("running", 1)).await.unwrap() else { panic!() };
    completed(&store, &request("done", 1), answer("done")).await;
    let stats = AnyStore::operable(store.clone()).stats(1).await.unwrap();
    assert_eq!((stats.records, stats.expired, stats.overdue), (Count::Exactly(2), Count::Exactly(0), None));
    assert_eq!((stats.running, stats.completed, stats.orphaned), (exactly(1), exactly(1), exactly(0)));
    clock.advance(LEASE);
    let stats = store.stats(1).await.unwrap();
    let stopped = [stats.lapsed, stats.unknown].map(|count| count.unwrap().number());
    assert_eq!((stats.running, stopped.iter().sum::<u64>()), (exactly(0), 1));
    clock.advance(RETENTION);
    let stats = store.stats(1).await.unwrap();
    assert_eq!((stats.records, stats.expired, stats.completed), (Count::Exactly(2), Count::Exactly(2), exactly(0)));
    // The first of them when its retention ended.
    assert_eq!(stats.overdue, Some(LEASE));
    let error = AnyStore::new(store).stats(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
}

// S26, case C25
#[tokio::test]
async fn a_full_store_sheds_load_and_forgets_nothing() {
    let store = MemoryStore::new().capacity(2);
    let Verdict::Claimed(running) = store.claim(&request("running", 1)).await.unwrap() else { panic!() };
    completed(&store, &request("done", 1), answer("done")).await;
    for number in 0..10 {
        let error = store.claim(&request(&format!("flood {number}"), 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
    }
    assert!(matches!(store.claim(&request("running", 1)).await, Ok(Verdict::InProgress { .. })));
    assert!(matches!(store.claim(&request("done", 1)).await, Ok(Verdict::Replay(_))));
    running.settle(Settlement::Abandon).await.unwrap();
    assert!(matches!(store.claim(&request("flood", 1)).await, Ok(Verdict::Claimed(_))));
}

// S26, cases O01, K17
#[tokio::test]
async fn the_table_is_empty_after_expiry() {
    let MemoryHarness { store, clock } = MemoryHarness::new();
    for number in 0..100 {
        completed(&store, &request(&format!("key {number}"), 1), answer("done")).await;
    }
    assert_eq!(store.len(), 100);
    clock.advance(RETENTION - Duration::from_millis(1));
    assert_eq!(store.purge(1000).await.unwrap(), 0);
    clock.advance(Duration::from_millis(1));
    store.purge(1000).await.unwrap();
    assert!(store.is_empty());
}

// H44: never ending before settle + 60 s.
#[tokio::test]
async fn a_slow_operations_answer_is_kept_for_a_minute_at_least() {
    let MemoryHarness { store, clock } = MemoryHarness::new();
    let asked = request("slow", 1);
    let Verdict::Claimed(claim) = store.claim(&asked).await.unwrap() else { panic!() };
    clock.advance(RETENTION - Duration::from_secs(1));
    let kept = idempotency::store::Kept { answer: answer("late"), retention: RETENTION };
    claim.settle(Settlement::Commit(kept)).await.unwrap();
    clock.advance(Duration::from_secs(59));
    assert!(matches!(store.claim(&request("slow", 1)).await, Ok(Verdict::Replay(_))));
    clock.advance(Duration::from_secs(1));
    assert!(matches!(store.claim(&request("slow", 1)).await, Ok(Verdict::Claimed(_))));
}

// S5, case L02
#[test]
fn a_lease_of_zero_is_refused() {
    assert_eq!(MemoryStore::new().lease(Duration::ZERO).unwrap_err().kind(), ErrorKind::Setup);
}

// S26, H24: a purge of any size gets through, however many keys were abandoned or renewed before.
#[tokio::test]
async fn abandoned_keys_leave_nothing_for_a_purge_to_stumble_over() {
    let MemoryHarness { store, clock } = MemoryHarness::new();
    for _ in 0..1000 {
        let Verdict::Claimed(claim) = store.claim(&request("abandoned", 1)).await.unwrap() else { panic!() };
        claim.settle(Settlement::Abandon).await.unwrap();
    }
    for number in 0..5 {
        completed(&store, &request(&format!("key {number}"), 1), answer("done")).await;
    }
    clock.advance(RETENTION);
    assert_eq!(store.purge(3).await.unwrap(), 3);
    assert_eq!(store.purge(3).await.unwrap(), 2);
    assert!(store.is_empty());
}
