//! Redis servers for the tests, and the harness of the conformance kit.

use std::process::Command;
use std::time::Duration;

use idempotency::store::{OnUnknown, RedisStore, RedisStoreBuilder};
use idempotency::testing::store::Harness;
use idempotency::{ErrorKind, LookupKey};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[path = "cutter.rs"]
mod cutter;
pub use cutter::Cutter;

/// Longer than a test waits for a reply, shorter than the kit waits for a key.
pub const LEASE: Duration = Duration::from_secs(3);

/// Tests that stop, pause or measure a server have all of them to themselves.
static SERVERS: RwLock<()> = RwLock::const_new(());

/// For tests that need the servers as they are.
pub async fn calm() -> RwLockReadGuard<'static, ()> {
    SERVERS.read().await
}

/// For tests that disturb others.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    SERVERS.write().await
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests by tests/run"))
}

pub fn url() -> String {
    variable("REDIS_URL")
}

pub fn cluster_urls() -> Vec<String> {
    variable("REDIS_CLUSTER_URL").split(',').map(str::to_owned).collect()
}

pub fn sentinel_url() -> String {
    variable("REDIS_SENTINEL_URL")
}

/// Controls one of the private servers, and puts it right again when dropped.
pub struct Disturbed(&'static str);

/// `stop`, `kill` or `pause`.
pub fn disturb(what: &str, server: &'static str) -> Disturbed {
    control(what, server);
    Disturbed(server)
}

pub fn control(what: &str, server: &str) {
    let done = Command::new(variable("REDIS_CTL")).args([what, server]).status().unwrap();
    assert!(done.success(), "redis-ctl {what} {server}");
}

impl Disturbed {
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        // One that was paused runs already: `start` does nothing then.
        let _ = Command::new(variable("REDIS_CTL")).args(["resume", self.0]).status();
        control("start", self.0);
    }
}

/// A prefix that no other test has.
pub fn prefix() -> String {
    format!("test-{}", uuid::Uuid::new_v4())
}

pub fn single(prefix: &str) -> RedisStoreBuilder {
    RedisStore::single(url()).prefix(prefix).lease(LEASE)
}

pub fn cluster(prefix: &str) -> RedisStoreBuilder {
    RedisStore::cluster(cluster_urls()).prefix(prefix).lease(LEASE)
}

/// The name of a record.
pub fn record(prefix: &str, lookup: &LookupKey) -> String {
    let hex: String = lookup.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}:{{{hex}}}")
}

/// A connection of the tests' own.
#[derive(Clone)]
pub enum Admin {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Admin {
    pub async fn single(url: &str) -> Self {
        Self::Single(redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap())
    }

    pub async fn cluster() -> Self {
        let client = redis::cluster::ClusterClient::new(cluster_urls()).unwrap();
        Self::Cluster(client.get_async_connection().await.unwrap())
    }

    pub async fn call<T: FromRedisValue>(&mut self, cmd: &Cmd) -> T {
        let value = match self {
            Self::Single(connection) => connection.req_packed_command(cmd).await,
            Self::Cluster(connection) => connection.req_packed_command(cmd).await,
        };
        redis::from_redis_value(value.and_then(Value::extract_error).unwrap()).unwrap()
    }

    pub async fn command<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut cmd = redis::cmd(words[0]);
        for word in &words[1..] {
            cmd.arg(*word);
        }
        self.call(&cmd).await
    }

    pub async fn hget(&mut self, key: &str, field: &str) -> Option<String> {
        self.command(&["HGET", key, field]).await
    }

    pub async fn hset(&mut self, key: &str, field: &str, value: impl ToString) {
        self.command::<()>(&["HSET", key, field, &value.to_string()]).await;
    }

    /// The server's clock, in microseconds.
    pub async fn now(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.command(&["TIME"]).await;
        seconds * 1_000_000 + micros
    }

    pub async fn names(&mut self, prefix: &str) -> Vec<String> {
        self.command(&["KEYS", &format!("{prefix}:*")]).await
    }
}

/// The harness of the conformance kit.
pub struct RedisHarness {
    pub prefix: String,
    pub admin: Admin,
    builder: fn(&str) -> RedisStoreBuilder,
    _calm: RwLockReadGuard<'static, ()>,
}

impl RedisHarness {
    pub async fn single() -> Self {
        let calm = calm().await;
        Self { prefix: prefix(), admin: Admin::single(&url()).await, builder: single, _calm: calm }
    }

    pub async fn cluster() -> Self {
        let calm = calm().await;
        Self { prefix: prefix(), admin: Admin::cluster().await, builder: cluster, _calm: calm }
    }

    pub fn builder(&self) -> RedisStoreBuilder {
        (self.builder)(&self.prefix)
    }

    pub fn record(&self, lookup: &LookupKey) -> String {
        record(&self.prefix, lookup)
    }
}

impl Harness for RedisHarness {
    type Store = RedisStore;

    const FREES_ON_DROP: bool = false;

    async fn store(&self) -> RedisStore {
        self.builder().build().unwrap()
    }

    // The record's own instant decides at once; the server deletes it some time later.
    async fn expire(&self, lookup: &LookupKey) {
        let (mut admin, name) = (self.admin.clone(), self.record(lookup));
        let past = admin.now().await - 1;
        assert_eq!(admin.hget(&name, "s").await.as_deref(), Some("c"));
        admin.hset(&name, "x", past).await;
        admin.command::<()>(&["PEXPIRE", &name, "1500"]).await;
    }

    async fn store_on_unknown(&self, on_unknown: OnUnknown) -> Option<RedisStore> {
        Some(self.builder().on_unknown(on_unknown).build().unwrap())
    }

    async fn records(&self) -> u64 {
        tokio::time::sleep(Duration::from_millis(1600)).await;
        let mut admin = self.admin.clone();
        let mut records = 0;
        for name in admin.names(&self.prefix).await {
            records += u64::from(admin.hget(&name, "s").await.is_some_and(|state| state != "f"));
        }
        records
    }

    async fn end_leases(&self) {
        let mut admin = self.admin.clone();
        for name in admin.names(&self.prefix).await {
            if admin.hget(&name, "s").await.as_deref() == Some("r") {
                admin.hset(&name, "l", 1).await;
            }
        }
    }
}

/// Forwards to the single server, and cuts a connection instead of passing the next answer on.
pub async fn cutter() -> Cutter {
    Cutter::before(url().trim_start_matches("redis://").split('/').next().unwrap().to_owned()).await
}

/// The kind of what should have failed.
pub fn kind<T>(result: Result<T, idempotency::Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.kind(),
    }
}
