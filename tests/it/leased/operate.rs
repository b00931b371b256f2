//! Operators on leases, beyond what the kit asks of every store (S8, S9).

use std::time::Duration;

use idempotency::policy::State;
use idempotency::store::{Claim, Entry, Kept, LeaseStore, Operate, Operated, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, LeaseDialect};

use super::lab::{Lab, Running};

super::on_each_engine! {
    an_unknown_key_is_released
    a_row_that_a_guard_has_locked_is_in_progress
    where_the_table_is_missing_it_says_so
}

const HOUR: Duration = Duration::from_secs(3600);

fn kept(text: &str) -> Kept {
    Kept { answer: answer(text), retention: HOUR }
}

async fn found<DB: LeaseDialect>(store: &LeaseStore<DB>, key: &str) -> Entry {
    let asked = request(key, 1);
    let lookup = asked.lookup();
    let mut entries = store.find(lookup.scope(), lookup.key(), None).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint())).await.unwrap().len(), 1);
    entries.remove(0)
}

/// A lease whose attempt stopped after a call to somebody else, and what is left of it.
async fn unknown<L: Lab>(lab: &L, key: &str) -> (idempotency::store::LeaseClaim<L::DB>, Entry) {
    let store = lab.store().await;
    let Ok(Verdict::Claimed(claim)) = store.claim(&request(key, 1)).await else { panic!() };
    claim.control().unwrap().dispatching().await.unwrap();
    lab.end_leases().await;
    let entry = found(&store, key).await;
    assert_eq!((entry.state, entry.attempt, entry.lease_left, entry.status), (State::Unknown, 1, None, None));
    assert!(entry.fence == claim.fence() && entry.age < HOUR && entry.expires_in > HOUR / 2);
    (claim, entry)
}

// S8, case L21
async fn an_unknown_key_is_released<L: Lab>() {
    let lab = L::new().await;
    let (claim, entry) = unknown(&lab, "k").await;
    drop(claim);
    let store = lab.store().await;
    completed(&store, &request("completed", 1), answer("done")).await;
    let Ok(Verdict::Claimed(_running)) = store.claim(&request("running", 1)).await else { panic!() };
    let keys = |entries: Vec<Entry>| entries.iter().map(|e| e.lookup.key().as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(store.list_stuck(HOUR, 10).await.unwrap()), ["k"]);
    assert_eq!(keys(store.list_stuck(Duration::ZERO, 10).await.unwrap()), ["k", "running"]);
    assert_eq!(keys(store.list_stuck(Duration::ZERO, 1).await.unwrap()), ["k"]);
    assert!(matches!(store.claim(&request("k", 1)).await, Ok(Verdict::Unknown)));
    assert_eq!(store.release(&entry).await.unwrap(), Operated::Done);
    assert_eq!(store.release(&entry).await.unwrap(), Operated::Done, "safe to repeat");
    let Ok(Verdict::Claimed(next)) = store.claim(&request("k", 1)).await else { panic!() };
    assert_eq!(next.attempt(), 2);
    assert!(next.fence() > entry.fence);
    for operated in [store.release(&entry).await, store.settle_as(&entry, kept("operator")).await] {
        assert_eq!(operated.unwrap(), Operated::Changed);
    }
    assert_eq!(store.forget(&entry).await.unwrap(), Operated::Changed);
    next.settle(Settlement::Abandon).await.unwrap();
}

// S8: an attempt that comes back is not taken its key from. (On SQLite the file's writer is waited for.)
async fn a_row_that_a_guard_has_locked_is_in_progress<L: Lab>() {
    let lab = L::new().await;
    let owner = Running::start(lab.store().await, "k").await;
    let mut tx = lab.begin().await;
    owner.attempt.checkpoint(&mut tx, "charged", &1).await.unwrap();
    tx.commit().await.unwrap();
    let store = lab.store().await.call_timeout(Duration::from_secs(1));
    lab.end_leases().await;
    let stuck = store.list_stuck(HOUR, 10).await.unwrap();
    assert_eq!((stuck[0].state, stuck[0].step.as_deref()), (State::Lapsed, Some("charged")));
    let mut tx = lab.begin().await;
    owner.attempt.guard(&mut tx).await.unwrap();
    match store.release(&stuck[0]).await {
        Ok(operated) => assert_eq!(operated, Operated::InProgress),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
    }
    tx.commit().await.unwrap();
    assert_eq!(store.release(&stuck[0]).await.unwrap(), Operated::InProgress, "the guard has prolonged the lease");
    assert_eq!(owner.end(201, "owner").await.text(), "owner");
}

async fn where_the_table_is_missing_it_says_so<L: Lab>() {
    let lab = L::new().await;
    lab.run("DROP TABLE idempotency_leases".to_owned()).await;
    let store = lab.store().await;
    assert_eq!(store.claim(&request("k", 1)).await.unwrap_err().kind(), ErrorKind::Setup);
}
