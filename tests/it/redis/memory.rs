//! Servers whose memory is bounded (S25, case B59).

use std::time::Duration;

use idempotency::store::{Claim, Kept, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, RedisStore};

use crate::support::counters::Counters;
use crate::support::redis::{Admin, alone, cluster_urls, kind, prefix, single, url};

/// Settings of a server, undone when dropped.
struct Limits(String);

impl Limits {
    fn set(url: &str, bytes: u64, policy: &str) -> Self {
        let limits = Self(url.to_owned());
        limits.write(bytes, policy);
        limits
    }

    fn write(&self, bytes: u64, policy: &str) {
        let mut connection = redis::Client::open(self.0.as_str()).unwrap().get_connection().unwrap();
        let mut cmd = redis::cmd("CONFIG");
        cmd.arg("SET").arg("maxmemory").arg(bytes).arg("maxmemory-policy").arg(policy).exec(&mut connection).unwrap();
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        self.write(0, "noeviction");
    }
}

/// How often a store that connects, is used and checked warns.
async fn warnings(store: RedisStore) -> u64 {
    let counters = Counters::default();
    let _guard = counters.install();
    completed(&store, &request(&prefix(), 1), answer("done")).await;
    for _ in 0..2 {
        store.check().await.unwrap();
    }
    counters.of("eviction_policy")
}

// Case B59: every record has an end, so `volatile-…` takes exactly ours.
#[tokio::test]
async fn a_policy_that_deletes_records_is_warned_about_once() {
    let _alone = alone().await;
    for (bytes, policy, expected) in
        [(1 << 30, "volatile-lru", 1), (1 << 30, "allkeys-lfu", 1), (1 << 30, "noeviction", 0), (0, "volatile-lru", 0)]
    {
        let _limits = Limits::set(&url(), bytes, policy);
        assert_eq!(warnings(single(&prefix()).build().unwrap()).await, expected, "{bytes} {policy}");
    }
}

// Each node has its own settings: `check` looks at all of them.
#[tokio::test]
async fn one_node_of_a_cluster_with_such_a_policy_is_found() {
    let _alone = alone().await;
    for node in cluster_urls() {
        let _limits = Limits::set(&node, 1 << 30, "volatile-ttl");
        assert_eq!(warnings(crate::support::redis::cluster(&prefix()).build().unwrap()).await, 1, "{node}");
    }
}

// S25, H23: a full server lets nobody in, and whoever is in gets out.
#[tokio::test]
async fn a_full_server_refuses_new_keys_and_ends_running_ones() {
    let _alone = alone().await;
    let store = single(&prefix()).build().unwrap();
    completed(&store, &request("done", 1), answer("done")).await;
    let mut claims = Vec::new();
    for key in ["committed", "abandoned", "lapsed"] {
        let Verdict::Claimed(claim) = store.claim(&request(key, 1)).await.unwrap() else { panic!("not free") };
        claims.push(claim);
    }
    let _limits = Limits::set(&url(), 1, "noeviction");
    let [mut committed, abandoned, lapsed] = <[_; 3]>::try_from(claims).unwrap();
    assert_eq!(kind(store.claim(&request("new", 1)).await), ErrorKind::Full);
    assert!(matches!(store.claim(&request("done", 1)).await, Ok(Verdict::Replay(_))));
    assert!(matches!(store.claim(&request("committed", 1)).await, Ok(Verdict::InProgress { .. })));
    committed.renew().await.unwrap();
    committed.control().unwrap().dispatching().await.unwrap();
    let kept = Kept { answer: answer("done"), retention: Duration::from_secs(60) };
    committed.settle(Settlement::Commit(kept)).await.unwrap();
    assert!(matches!(store.claim(&request("committed", 1)).await, Ok(Verdict::Replay(_))));
    abandoned.settle(Settlement::Abandon).await.unwrap();
    // A take-over that is refused leaves the record as it was.
    lapsed.settle(Settlement::Unknown).await.unwrap();
    assert_eq!(kind(store.claim(&request("lapsed", 1)).await), ErrorKind::Full);
    assert!(matches!(store.claim(&request("lapsed", 2)).await, Ok(Verdict::Mismatch)));
    drop(_limits);
    let Verdict::Claimed(next) = store.claim(&request("lapsed", 1)).await.unwrap() else { panic!("not free") };
    assert_eq!(next.attempt(), 2);
}

/// A user of the single server, gone when dropped.
struct User(&'static str);

impl User {
    fn command(words: &[&str]) {
        let mut connection = redis::Client::open(url()).unwrap().get_connection().unwrap();
        let mut cmd = redis::cmd("ACL");
        for word in words {
            cmd.arg(*word);
        }
        cmd.exec(&mut connection).unwrap();
    }

    fn set(name: &'static str, rights: &[&str]) -> Self {
        Self::command(&[&["SETUSER", name, "on", ">secret", "~*"], rights].concat());
        Self(name)
    }

    fn url(&self, password: &str) -> String {
        url().replace("redis://", &format!("redis://{}:{password}@", self.0))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        Self::command(&["DELUSER", self.0]);
    }
}

// A server that does not say what it is gets the scripts that every version knows.
#[tokio::test]
async fn a_server_that_hides_its_version_works() {
    let _alone = alone().await;
    let user = User::set("hidden", &["+@all", "-info"]);
    let store = RedisStore::single(user.url("secret")).prefix(prefix()).build().unwrap();
    store.check().await.unwrap();
    completed(&store, &request("done", 1), answer("done")).await;
    let Verdict::Claimed(mut claim) = store.claim(&request("ended", 1)).await.unwrap() else { panic!("not free") };
    claim.renew().await.unwrap();
    claim.control().unwrap().dispatching().await.unwrap();
    claim.settle(Settlement::Unknown).await.unwrap();
    assert!(matches!(store.claim(&request("ended", 1)).await, Ok(Verdict::Unknown)));
    let Verdict::Claimed(claim) = store.claim(&request("freed", 1)).await.unwrap() else { panic!("not free") };
    claim.settle(Settlement::Abandon).await.unwrap();
    assert!(matches!(store.claim(&request("done", 1)).await, Ok(Verdict::Replay(_))));
}

// What waiting does not mend is told apart from what it does, and shows no secret (H9).
#[tokio::test]
async fn a_wrong_password_and_a_missing_right_are_faults_of_the_setup() {
    let _alone = alone().await;
    let user = User::set("feeble", &["+@all", "-evalsha", "-eval"]);
    for password in ["wrong", "secret"] {
        let store = RedisStore::single(user.url(password)).prefix(prefix()).build().unwrap();
        let error = store.claim(&request("k", 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{password}: {error:?}");
        assert!(!format!("{error:?}").contains(password), "{error:?}");
    }
}

// S26's counterpart: nothing stays for ever, whatever became of the key.
#[tokio::test]
async fn every_record_has_an_end() {
    let harness = crate::support::redis::RedisHarness::single().await;
    let store = harness.builder().build().unwrap();
    let mut admin: Admin = harness.admin.clone();
    for (key, settlement) in [
        ("running", None),
        ("committed", Some(Settlement::Commit(Kept { answer: answer("a"), retention: Duration::MAX }))),
        ("abandoned", Some(Settlement::Abandon)),
        ("stopped", Some(Settlement::Unknown)),
    ] {
        let Verdict::Claimed(claim) = store.claim(&request(key, 1)).await.unwrap() else { panic!("not free") };
        if let Some(settlement) = settlement {
            claim.settle(settlement).await.unwrap();
        }
        let left: i64 = admin.command(&["PTTL", &harness.record(request(key, 1).lookup())]).await;
        assert!(left > 0, "{key}: {left}");
    }
}
