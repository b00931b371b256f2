//! Many at once.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use idempotency::store::{Claim, Settlement, Store, Verdict};
use idempotency::testing::store::request;
use idempotency::{IdempotencyLayer, LeaseStore, Scope};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::lab::{Lab, PostgresLab, SqliteLab};
use crate::support::counters::Counters;
use crate::support::http::{Runs, post, send};
use crate::support::postgres::pool_of;

super::on_each_engine! {
    of_many_who_find_a_lapsed_key_one_takes_it_over
}

// S3, S21; cases C04, L10
async fn of_many_who_find_a_lapsed_key_one_takes_it_over<L: Lab>() {
    let lab = L::new().await;
    for round in 0..5 {
        let key = format!("lapsed {round}");
        let first = lab.store().await.claim(&request(&key, 1)).await.unwrap();
        assert!(matches!(first, Verdict::Claimed(_)));
        lab.end_leases().await;
        let start = Arc::new(Barrier::new(40));
        let mut askers = JoinSet::new();
        for _ in 0..40 {
            let (store, asked, start) = (lab.store().await, request(&key, 1), Arc::clone(&start));
            askers.spawn(async move {
                start.wait().await;
                store.claim(&asked).await.unwrap()
            });
        }
        let mut owners = Vec::new();
        for verdict in askers.join_all().await {
            match verdict {
                Verdict::Claimed(claim) => owners.push(claim),
                Verdict::InProgress { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[0].attempt(), 2);
        owners.remove(0).settle(Settlement::Abandon).await.unwrap();
    }
}

/// So many handlers that outlive their lease, each renewed by itself.
async fn all_keep_their_leases<L: Lab>(store: LeaseStore<L::DB>, keys: usize, lease: Duration, work: Duration) {
    let counters = Counters::default();
    let guard = counters.install();
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move || {
        handler.next();
        sleep(work).await;
    });
    let app = app.layer(IdempotencyLayer::new(store.lease(lease).unwrap(), Scope::shared()).claim_timeout(work));
    let mut requests = JoinSet::new();
    for number in 0..keys {
        let app = app.clone();
        requests.spawn(async move { send(&app, post(&format!("key {number}"))).await.said() });
    }
    let said = requests.join_all().await;
    let failed: Vec<_> = said.iter().filter(|said| *said != "200").collect();
    assert!(failed.is_empty(), "{} of {keys}: {:?}", failed.len(), failed.first());
    assert_eq!((runs.count(), counters.of("lease_lost")), (keys, 0));
    drop(guard);
}

// S20, case L23: renewals do not stand in line behind each other, but only for a connection.
#[tokio::test]
async fn a_thousand_keys_on_a_slow_store_keep_their_leases() {
    let lab = PostgresLab::on(pool_of(20).await).await;
    for step in [
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE UPDATE ON idempotency_leases FOR EACH ROW EXECUTE FUNCTION slow()",
    ] {
        lab.run(step.to_owned()).await;
    }
    let store = lab.store().await.call_timeout(Duration::from_secs(30));
    all_keep_their_leases::<PostgresLab>(store, 1000, Duration::from_secs(12), Duration::from_secs(15)).await;
    let renewed = "SELECT count(*) FROM idempotency_leases WHERE state = 1 AND attempt = 1";
    assert_eq!(lab.count(renewed.to_owned()).await, 1000);
}

// The same where every renewal is a durable write of one writer.
#[tokio::test]
async fn three_hundred_keys_on_one_file_keep_their_leases() {
    let lab = SqliteLab::new().await;
    let store = lab.store().await.call_timeout(Duration::from_secs(30));
    all_keep_their_leases::<SqliteLab>(store, 300, Duration::from_secs(6), Duration::from_secs(8)).await;
}
