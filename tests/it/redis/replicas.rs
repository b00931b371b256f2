//! Replicas and Sentinel.

use std::time::{Duration, Instant};

use idempotency::store::{Claim, Kept, RedisStoreBuilder, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, RedisStore};

use crate::support::redis::{Admin, LEASE, alone, calm, disturb, kind, prefix, sentinel_url, single};

fn watched() -> RedisStoreBuilder {
    RedisStore::sentinel([sentinel_url()], "main").prefix(prefix()).lease(LEASE)
}

// A claim that no replica has confirmed is none, and holds nobody up.
#[tokio::test]
async fn without_the_replicas_that_are_asked_for_nothing_is_claimed() {
    let _calm = calm().await;
    let prefix = prefix();
    let alone = single(&prefix).build().unwrap();
    let careful = single(&prefix).wait_replicas(1, Duration::from_millis(50)).build().unwrap();
    assert_eq!(kind(careful.claim(&request("k", 1)).await), ErrorKind::Unavailable);
    completed(&alone, &request("k", 1), answer("done")).await;
    // What stands is told without asking them.
    assert!(matches!(careful.claim(&request("k", 1)).await, Ok(Verdict::Replay(_))));
    // The answer is on the server, and not where it should be besides: H35 records it again.
    let Verdict::Claimed(claim) = alone.claim(&request("half", 1)).await.unwrap() else { panic!("not free") };
    claim.settle(Settlement::Abandon).await.unwrap();
}

#[tokio::test]
async fn the_primary_of_a_sentinel_and_its_replica_have_the_record() {
    let _calm = calm().await;
    let store = watched().wait_replicas(1, Duration::from_millis(1500)).build().unwrap();
    store.check().await.unwrap();
    let Verdict::Claimed(claim) = store.claim(&request("k", 1)).await.unwrap() else { panic!("not free") };
    let control = claim.control().unwrap();
    control.dispatching().await.unwrap();
    let kept = Kept { answer: answer("done"), retention: Duration::from_secs(60) };
    claim.settle(Settlement::Commit(kept)).await.unwrap();
    assert!(matches!(store.claim(&request("k", 1)).await, Ok(Verdict::Replay(_))));
}

// S25: a settlement that the replica did not confirm is not "recorded", and H35 may record it again.
#[tokio::test]
async fn a_replica_that_falls_silent_is_told() {
    let _alone = alone().await;
    let store = watched().wait_replicas(1, Duration::from_millis(300)).build().unwrap();
    completed(&store, &request("warm", 1), answer("warm")).await;
    let Verdict::Claimed(claim) = store.claim(&request("k", 1)).await.unwrap() else { panic!("not free") };
    let control = claim.control().unwrap();
    let replica = replica().await;
    let paused = disturb("pause", replica);
    let kept = || Settlement::Commit(Kept { answer: answer("done"), retention: Duration::from_secs(60) });
    assert_eq!(kind(claim.settle(kept()).await), ErrorKind::NotRecorded);
    assert_eq!(kind(control.record(kept()).await), ErrorKind::Unavailable);
    paused.end();
    let until = Instant::now() + Duration::from_secs(10);
    while control.record(kept()).await.is_err() {
        assert!(Instant::now() < until, "the replica does not confirm");
    }
    followed().await;
}

/// Which of the two private servers is the replica just now.
async fn replica() -> &'static str {
    let mut sentinel = Admin::single(&sentinel_url()).await;
    let (_, port): (String, u16) = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).await;
    let folder = std::path::PathBuf::from(std::env::var("REDIS_CTL").unwrap());
    let primary = std::fs::read_to_string(folder.with_file_name("redis-primary.port")).unwrap();
    if primary.trim() == port.to_string() { "replica" } else { "primary" }
}

/// Waits until the primary has its replica.
async fn followed() {
    let mut sentinel = Admin::single(&sentinel_url()).await;
    for _ in 0..200 {
        let (host, port): (String, u16) = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).await;
        let mut primary = Admin::single(&format!("redis://{host}:{port}")).await;
        let info: String = primary.command(&["INFO", "replication"]).await;
        if info.contains("state=online") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the primary has no replica");
}

// S25: after a failover the store finds the new primary by itself, and what the replica had is still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_is_followed() {
    let _alone = alone().await;
    followed().await;
    let store = watched().wait_replicas(1, Duration::from_millis(1500)).build().unwrap();
    completed(&store, &request("before", 1), answer("before")).await;
    let old = replica().await;
    let mut sentinel = Admin::single(&sentinel_url()).await;
    sentinel.command::<()>(&["SENTINEL", "FAILOVER", "main"]).await;
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if replica().await != old
            && let Ok(Verdict::Claimed(claim)) = store.claim(&request("after", 1)).await
        {
            let kept = Kept { answer: answer("after"), retention: Duration::from_secs(60) };
            if claim.settle(Settlement::Commit(kept)).await.is_ok() {
                break;
            }
        }
        assert!(Instant::now() < until, "the new primary is not found");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for key in ["before", "after"] {
        assert!(matches!(store.claim(&request(key, 1)).await, Ok(Verdict::Replay(_))), "{key}");
    }
    followed().await;
}
