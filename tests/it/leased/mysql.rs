//! What leases on MySQL owe to what MySQL cannot do: a transaction there goes on after an error.

use idempotency::store::{Claim, Kept, LeaseStore, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, MySqlStore};
use sqlx::{MySql, Transaction};
use tokio::time::{Duration, Instant};

use super::lab::{Lab, MariaDbLab, NoWaitLockLab, Running};
use crate::support::mysql::{new_database, options, pool_on};

async fn zombie<L: Lab>(lab: &L) -> (Running, Running) {
    let zombie = Running::start(lab.store().await, "k").await;
    lab.end_leases().await;
    let owner = Running::start(lab.store().await, "k").await;
    (zombie, owner)
}

async fn session(tx: &mut Transaction<'static, MySql>) -> u64 {
    sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut **tx).await.unwrap()
}

// S24: whatever a handler does after a guard that it should have believed, nothing of it is kept, and its session is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_swallows_the_error_commits_nothing() {
    let lab = MariaDbLab::new().await;
    let (zombie, owner) = zombie(&lab).await;
    const WAYS_ON: [&[&str]; 5] = [
        &[],
        &["COMMIT"],
        &["BEGIN", "INSERT INTO effects (what) VALUES ('anew')", "COMMIT"],
        &["SET autocommit = 1", "INSERT INTO effects (what) VALUES ('at once')"],
        &["START TRANSACTION READ WRITE", "INSERT INTO effects (what) VALUES ('by force')", "COMMIT"],
    ];
    for checkpoint in [false, true] {
        for way_on in WAYS_ON {
            let mut tx = lab.begin().await;
            let session = session(&mut tx).await;
            MariaDbLab::write(&mut tx, "before").await.unwrap();
            let told = if checkpoint {
                zombie.attempt.checkpoint(&mut tx, "step", &1).await
            } else {
                zombie.attempt.guard(&mut tx).await
            };
            assert_eq!(told.unwrap_err().kind(), ErrorKind::LeaseLost);
            for statement in way_on {
                assert!(sqlx::raw_sql(*statement).execute(&mut *tx).await.is_err(), "{statement} was answered");
            }
            assert!(MariaDbLab::write(&mut tx, "after").await.is_err());
            assert!(tx.commit().await.is_err());
            assert_eq!(lab.effects().await, 0, "{way_on:?}");
            let alive = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {session}");
            let until = Instant::now() + Duration::from_secs(5);
            while lab.count(alive.clone()).await > 0 {
                assert!(Instant::now() < until, "the session lives");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    // The pool is as good as before, and so is the owner.
    let mut tx = lab.begin().await;
    owner.attempt.guard(&mut tx).await.unwrap();
    MariaDbLab::write(&mut tx, "the owner's").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(lab.effects().await, 1);
    assert_eq!(owner.end(201, "owner").await.text(), "owner");
    zombie.end(201, "zombie").await;
}

// S24: the server undoes a deadlock's whole transaction, and would commit each later statement by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_fails_otherwise_commits_nothing_either() {
    let lab = MariaDbLab::new().await;
    let owner = Running::start(lab.store().await, "k").await;
    let mut tx = lab.begin().await;
    MariaDbLab::write(&mut tx, "before").await.unwrap();
    lab.run("ALTER TABLE idempotency_leases RENAME TO moved".to_owned()).await;
    assert_eq!(owner.attempt.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::Setup);
    assert!(MariaDbLab::write(&mut tx, "after").await.is_err());
    assert!(tx.commit().await.is_err());
    assert_eq!(lab.effects().await, 0);
    lab.run("ALTER TABLE moved RENAME TO idempotency_leases".to_owned()).await;
    assert_eq!(owner.end(201, "owner").await.text(), "owner");
}

// S24: databases of one server share their transactions, so one begun in another database guards as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_another_database_of_the_server_guards() {
    let lab = MariaDbLab::new().await;
    let elsewhere = pool_on(options().database(&new_database().await), 2).await;
    LeaseStore::new(elsewhere.clone()).await.unwrap().migrate().await.unwrap();
    let (zombie, owner) = zombie(&lab).await;
    let mut tx = elsewhere.begin().await.unwrap();
    owner.attempt.guard(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = elsewhere.begin().await.unwrap();
    assert_eq!(zombie.attempt.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(tx.commit().await.is_err());
    owner.end(201, "owner").await;
    zombie.end(201, "zombie").await;
}

// S3, S20: a zombie's settlement does not wait for the transaction that guards its follower.
async fn a_settlement_that_comes_too_late_is_told_at_once<L: Lab<DB = MySql>>() {
    let lab = L::new().await;
    let store = lab.store().await;
    let Ok(Verdict::Claimed(mut late)) = store.claim(&request("k", 1)).await else { panic!() };
    lab.end_leases().await;
    let owner = Running::start(lab.store().await, "other").await;
    let Ok(Verdict::Claimed(_follower)) = store.claim(&request("k", 1)).await else { panic!() };
    let mut tx = lab.begin().await;
    sqlx::raw_sql("SELECT * FROM idempotency_leases FOR UPDATE").execute(&mut *tx).await.unwrap();
    let since = Instant::now();
    assert_eq!(late.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let kept = Kept { answer: answer("late"), retention: Duration::from_secs(3600) };
    assert_eq!(late.settle(Settlement::Commit(kept)).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    drop(tx);
    owner.end(201, "owner").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_on_mariadb() {
    a_settlement_that_comes_too_late_is_told_at_once::<MariaDbLab>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_settlement_as_on_mysql() {
    a_settlement_that_comes_too_late_is_told_at_once::<NoWaitLockLab>().await;
}

// S30: both tables, one history; a key of one store is no key of the other.
#[tokio::test(flavor = "multi_thread")]
async fn both_ways_of_holding_a_key_live_in_one_database() {
    let lab = MariaDbLab::new().await;
    let transactional = MySqlStore::new(lab.pool().clone()).await.unwrap();
    transactional.migrate().await.unwrap();
    completed(&transactional, &request("k", 1), answer("transaction")).await;
    completed(&lab.store().await, &request("k", 1), answer("lease")).await;
    let versions = lab.count("SELECT count(*) FROM idempotency_migrations".to_owned()).await;
    let newest = (1..).take_while(|version| MySqlStore::schema_sql(*version, None).is_some()).count();
    assert_eq!(usize::try_from(versions).unwrap(), newest);
}

// S3: a clock of the server that goes back does not let a fence shrink.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_grows_whatever_the_servers_clock_does() {
    let lab = MariaDbLab::new().await;
    let store = lab.store().await;
    let Ok(Verdict::Claimed(first)) = store.claim(&request("k", 1)).await else { panic!() };
    let now = lab
        .count("SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))".to_owned())
        .await;
    let fence = first.fence().unwrap().0;
    assert!(now.unsigned_abs().abs_diff(fence) < 60_000_000, "{fence} is no instant of the server");
    let future = i64::MAX / 2;
    lab.run(format!("UPDATE idempotency_leases SET fence = {future}")).await;
    for round in 1..4 {
        lab.end_leases().await;
        let Ok(Verdict::Claimed(claim)) = store.claim(&request("k", 1)).await else { panic!("{round}") };
        assert_eq!(claim.fence().unwrap().0, future.unsigned_abs() + round);
        if round == 2 {
            claim.settle(Settlement::Abandon).await.map(drop).unwrap();
        }
    }
}
