//! A Redis Cluster that loses a node.

use std::time::{Duration, Instant};

use axum::Router;
use idempotency::testing::store::{answer, completed, request};
use idempotency::{IdempotencyLayer, Scope};

use crate::support::http::{Answered, Runs, post, send};
use crate::support::redis::{Admin, alone, cluster, cluster_urls, disturb, prefix};

/// Keys of the layer's requests, by the node that has their records: ten each.
async fn keys_by_node(prefix: &str, app: &Router) -> [Vec<String>; 3] {
    let mut admin = Admin::cluster().await;
    let mut found: [Vec<String>; 3] = Default::default();
    for number in 0..1000 {
        let key = format!("key-{number}");
        if !send(app, post(&key)).await.status.is_success() {
            panic!("{key} is not served");
        }
        let mut names = admin.names(prefix).await;
        let name = names.pop().unwrap();
        let slot: u32 = {
            let mut node = Admin::single(&cluster_urls()[0]).await;
            node.command(&["CLUSTER", "KEYSLOT", &name]).await
        };
        admin.command::<()>(&["DEL", &name]).await;
        let keys = &mut found[match slot {
            0..=5460 => 0,
            5461..=10922 => 1,
            _ => 2,
        }];
        if keys.len() < 10 {
            keys.push(key);
        }
        if found.iter().all(|keys| keys.len() == 10) {
            return found;
        }
    }
    panic!("the keys do not spread: {found:?}");
}

async fn timed(app: &Router, key: &str) -> (Answered, Duration) {
    let start = Instant::now();
    let answered = send(app, post(key)).await;
    (answered, start.elapsed())
}

async fn whole_again() {
    for url in cluster_urls() {
        let mut node = Admin::single(&url).await;
        for _ in 0..100 {
            let info: String = node.command(&["CLUSTER", "INFO"]).await;
            if info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

// S25: the slots of other nodes go on, those of the lost one are refused within a bound, and come back with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_stops_its_own_keys_only() {
    let _alone = alone().await;
    let prefix = prefix();
    let store = cluster(&prefix).response_timeout(Duration::from_secs(1)).build().unwrap();
    let runs = Runs::default();
    let app = runs.app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let [first, second, third] = keys_by_node(&prefix, &app).await;
    let before = runs.count();
    let down = disturb("kill", "cluster-2");
    // At once, and when the others have noticed.
    for round in 0..2 {
        for key in first.iter().chain(&third).skip(round).step_by(2) {
            let (answered, took) = timed(&app, key).await;
            assert_eq!(answered.said(), "201", "round {round}: {key}");
            assert!(took < Duration::from_secs(1), "round {round}: {key} took {took:?}");
        }
        for key in second.iter().skip(round).step_by(4) {
            let (answered, took) = timed(&app, key).await;
            assert_eq!(answered.said(), "503 store-unavailable", "round {round}: {key}");
            assert!(took < Duration::from_millis(1500), "round {round}: {key} took {took:?}");
        }
        tokio::time::sleep(Duration::from_millis(2000)).await;
    }
    assert_eq!(runs.count(), before + 20, "the handlers of the lost keys did not run");
    // A store that starts now finds the others.
    let newborn = cluster(&prefix).build().unwrap();
    newborn.check().await.unwrap_err();
    let late = runs.app().layer(IdempotencyLayer::new(newborn, Scope::shared()));
    let (answered, took) = timed(&late, &first[0]).await;
    assert!(answered.is_replay() && took < Duration::from_secs(3), "{took:?}: {}", answered.said());
    down.end();
    whole_again().await;
    let until = Instant::now() + Duration::from_secs(10);
    while timed(&app, &second[0]).await.0.said() != "201" {
        assert!(Instant::now() < until, "the lost node's keys do not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    store.check().await.unwrap();
}

// A claim, its settlement and every other step lie on one node: no script names two slots.
#[tokio::test(flavor = "multi_thread")]
async fn records_lie_on_all_nodes() {
    let _calm = crate::support::redis::calm().await;
    let prefix = prefix();
    let store = cluster(&prefix).build().unwrap();
    for number in 0..60 {
        completed(&store, &request(&format!("{number}"), 1), answer("done")).await;
    }
    for url in cluster_urls() {
        let names = Admin::single(&url).await.names(&prefix).await;
        assert!(!names.is_empty(), "{url} has no record of 60");
    }
}
