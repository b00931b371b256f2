//! Transactions of a handler's own under a lease: guards and checkpoints (S23, S24).

use std::time::Duration;

use http::StatusCode;
use idempotency::store::{OnUnknown, Resumed};
use idempotency::{Attempt, ErrorKind, IdempotencyLayer, MemoryStore, Scope};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::time::{Instant, sleep, timeout};

use super::lab::{Lab, Running, Unrenewed, answering};
use crate::support::http::{Runs, post, post_body, send};

super::on_each_engine! {
    a_zombies_transaction_cannot_commit
    a_zombies_checkpoint_changes_nothing
    a_guarded_row_is_not_waited_for
    a_guard_longer_than_the_lease_keeps_the_key
    the_next_attempt_goes_on_from_the_checkpoint
    a_checkpoint_that_is_rolled_back_is_none
    a_dispatched_attempt_is_held_whatever_its_checkpoints
    a_transaction_elsewhere_cannot_be_guarded
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Charge {
    id: String,
    cents: u64,
}

fn charge(id: &str) -> Charge {
    Charge { id: id.to_owned(), cents: 1250 }
}

/// An attempt that has been followed by another one.
async fn followed<L: Lab>(lab: &L, key: &'static str) -> (Running, Running) {
    let zombie = Running::start(lab.store().await, key).await;
    lab.end_leases().await;
    let owner = Running::start(lab.store().await, key).await;
    (zombie, owner)
}

// S24
async fn a_zombies_transaction_cannot_commit<L: Lab>() {
    let lab = L::new().await;
    let (zombie, owner) = followed(&lab, "k").await;
    let mut tx = lab.begin().await;
    L::write(&mut tx, "the zombie's, before").await.unwrap();
    assert_eq!(zombie.attempt.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    // It goes on all the same.
    let _ = L::write(&mut tx, "the zombie's, after").await;
    let _ = zombie.attempt.guard(&mut tx).await.unwrap_err();
    let _ = tx.commit().await;
    assert_eq!(lab.effects().await, 0);

    let mut tx = lab.begin().await;
    owner.attempt.guard(&mut tx).await.unwrap();
    L::write(&mut tx, "the owner's").await.unwrap();
    owner.attempt.guard(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.effects().await, 1);
    assert_eq!(zombie.end(201, "zombie").await.said(), "409 lease-lost");
    assert_eq!(owner.end(201, "owner").await.text(), "owner");

    // After the end nobody owns it.
    let done = Running::start(lab.store().await, "done").await;
    let attempt = done.attempt.clone();
    assert_eq!(done.end(201, "done").await.status, 201);
    let mut tx = lab.begin().await;
    L::write(&mut tx, "too late").await.unwrap();
    assert_eq!(attempt.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let _ = tx.commit().await;
    assert_eq!(lab.effects().await, 1);
}

// S23
async fn a_zombies_checkpoint_changes_nothing<L: Lab>() {
    let lab = L::new().await;
    let (zombie, owner) = followed(&lab, "k").await;
    let mut tx = lab.begin().await;
    owner.attempt.checkpoint(&mut tx, "charged", &charge("owner")).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = lab.begin().await;
    L::write(&mut tx, "the zombie's").await.unwrap();
    let error = zombie.attempt.checkpoint(&mut tx, "charged", &charge("zombie")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    let _ = tx.commit().await;
    assert_eq!(lab.effects().await, 0);
    lab.end_leases().await;
    let third = Running::start(lab.store().await, "k").await;
    let resumed = third.attempt.resume::<Charge>().unwrap();
    assert_eq!(resumed, Some(Resumed { step: "charged".to_owned(), state: charge("owner") }));
    assert_eq!(third.attempt.resume::<Vec<u8>>().unwrap_err().kind(), ErrorKind::Unreadable);
    for followed in [zombie, owner] {
        assert_eq!(followed.end(201, "followed").await.said(), "409 lease-lost");
    }
    assert_eq!(third.end(201, "third").await.text(), "third");
}

// S24: nobody takes a guarded row over, and nobody waits for it (case C29). The lease itself has ended.
async fn a_guarded_row_is_not_waited_for<L: Lab>() {
    let lab = L::new().await;
    let lease = Duration::from_millis(200);
    let owner = Running::start(Unrenewed(lab.store().await.lease(lease).unwrap()), "k").await;
    let mut tx = lab.begin().await;
    owner.attempt.guard(&mut tx).await.unwrap();
    L::write(&mut tx, "the owner's").await.unwrap();
    sleep(lease * 2).await;
    let app = answering(lab.store().await, "rival");
    let since = Instant::now();
    let told = timeout(Duration::from_secs(10), send(&app, post("k"))).await.unwrap();
    assert_eq!(told.said(), "409 in-progress");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(send(&app, post_body("k", "other")).await.said(), "422 key-reused");
    tx.commit().await.unwrap();
    assert_eq!(lab.effects().await, 1);
    sleep(lease).await;
    assert_eq!(send(&app, post("k")).await.text(), "rival", "the lease has not been renewed");
    assert_eq!(owner.end(201, "owner").await.said(), "409 lease-lost");
}

// S20, S24: a row that its own guard has locked is not a lost lease; it is renewed as soon as it can be.
async fn a_guard_longer_than_the_lease_keeps_the_key<L: Lab>() {
    let lab = L::new().await;
    let lease = Duration::from_secs(1);
    let owner = Running::start(lab.store().await.lease(lease).unwrap(), "k").await;
    let rival = answering(lab.store().await, "rival");
    let mut tx = lab.begin().await;
    owner.attempt.guard(&mut tx).await.unwrap();
    sleep(lease * 5 / 2).await;
    assert_eq!(send(&rival, post("k")).await.said(), "409 in-progress");
    tx.commit().await.unwrap();
    sleep(lease / 2).await;
    for _ in 0..4 {
        assert_eq!(send(&rival, post("k")).await.said(), "409 in-progress");
        sleep(lease / 2).await;
    }
    assert_eq!(owner.end(201, "owner").await.text(), "owner");
}

// S23: also after an answer that frees a key otherwise.
async fn the_next_attempt_goes_on_from_the_checkpoint<L: Lab>() {
    let lab = L::new().await;
    let first = Running::start(lab.store().await, "k").await;
    assert_eq!(first.attempt.resume::<Charge>().unwrap(), None);
    for (step, id) in [("charged", "one"), ("shipped", "two")] {
        let mut tx = lab.begin().await;
        L::write(&mut tx, "a step").await.unwrap();
        first.attempt.checkpoint(&mut tx, step, &charge(id)).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(first.end(503, "failed").await.status, 503);
    let other = answering(lab.store().await, "other");
    assert_eq!(send(&other, post_body("k", "another request")).await.said(), "422 key-reused");
    let second = Running::start(lab.store().await, "k").await;
    let resumed = second.attempt.resume::<Charge>().unwrap();
    assert_eq!(resumed, Some(Resumed { step: "shipped".to_owned(), state: charge("two") }));
    assert_eq!(second.attempt.number(), 2);
    assert_eq!(second.end(201, "done").await.text(), "done");
    assert!(send(&other, post("k")).await.is_replay());
    assert_eq!(lab.count("SELECT count(*) FROM idempotency_leases WHERE checkpoint IS NOT NULL".to_owned()).await, 0);
}

async fn a_checkpoint_that_is_rolled_back_is_none<L: Lab>() {
    let lab = L::new().await;
    let first = Running::start(lab.store().await, "k").await;
    let mut tx = lab.begin().await;
    first.attempt.checkpoint(&mut tx, "charged", &charge("one")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(first.end(503, "failed").await.status, 503);
    let second = Running::start(lab.store().await, "k").await;
    assert_eq!((second.attempt.number(), second.attempt.resume::<Charge>().unwrap()), (1, None));
    second.end(201, "done").await;
}

// S21, S22
async fn a_dispatched_attempt_is_held_whatever_its_checkpoints<L: Lab>() {
    let lab = L::new().await;
    for (on_unknown, told) in [(OnUnknown::HoldDispatched, "409 outcome-unknown"), (OnUnknown::Rerun, "200")] {
        let key = if on_unknown == OnUnknown::Rerun { "rerun" } else { "hold" };
        let store = lab.store().await.on_unknown(on_unknown);
        let first = Running::start(store.clone(), key).await;
        first.attempt.dispatching().await.unwrap();
        let mut tx = lab.begin().await;
        first.attempt.checkpoint(&mut tx, "charged", &charge("one")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(first.end(502, "gone").await.status, 502);
        let runs = Runs::default();
        let handler = runs.clone();
        let app = axum::Router::new().fallback(async move |attempt: Attempt| {
            handler.next();
            assert_eq!(attempt.resume::<Charge>().unwrap().unwrap().state, charge("one"));
        });
        let app = app.layer(IdempotencyLayer::new(store, Scope::shared()));
        assert_eq!(send(&app, post(key)).await.said(), told);
        assert_eq!(runs.count(), usize::from(told == "200"));
    }
}

// S24: a wrong transaction is a mistake of whoever wrote the handler, and says so.
async fn a_transaction_elsewhere_cannot_be_guarded<L: Lab>() {
    let lab = L::new().await;
    let elsewhere = lab.elsewhere().await;
    let owner = Running::start(lab.store().await, "k").await;
    if let Some(elsewhere) = elsewhere {
        let mut tx = elsewhere.begin().await.unwrap();
        assert_eq!(owner.attempt.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::Setup);
    }
    // A nested one is undone alone.
    let mut tx = lab.begin().await;
    let mut nested = tx.begin().await.unwrap();
    assert_eq!(owner.attempt.guard(&mut nested).await.unwrap_err().kind(), ErrorKind::Setup);
    drop(nested);
    owner.attempt.guard(&mut tx).await.unwrap();
    drop(tx);
    assert_eq!(owner.end(201, "owner").await.status, StatusCode::CREATED);
    // A store of another kind.
    let other = Running::start(MemoryStore::new(), "k").await;
    let mut tx = lab.begin().await;
    assert_eq!(other.attempt.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::Setup);
    let error = other.attempt.checkpoint(&mut tx, "step", &()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(other.attempt.resume::<()>().unwrap(), None);
    drop(tx);
    other.end(201, "other").await;
}
