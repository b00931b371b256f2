//! Where keys are kept that are no part of the database's transaction: `KEYS` and `LEASE`.

use std::error::Error;
use std::time::Duration;

use idempotency::RedisStore;
use idempotency::store::RedisStoreBuilder;

/// How long a key waits for an owner that is gone, unless `LEASE` says otherwise.
const LEASE: Duration = Duration::from_secs(30);

/// A place for keys by leases.
pub enum Keys {
    /// In a table beside the service's own rows.
    Lease,
    /// In this process.
    Memory,
    /// On a server, or on a cluster.
    Redis(Box<RedisStoreBuilder>),
}

impl Keys {
    /// Reads `lease`, `memory`, `redis://…` or `redis-cluster://HOST:PORT[,HOST:PORT…]`.
    pub fn parse(text: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        if let Some(nodes) = text.strip_prefix("redis-cluster://") {
            let nodes: Vec<String> = nodes.split(',').map(|node| format!("redis://{node}")).collect();
            return Ok(Self::Redis(Box::new(RedisStore::cluster(nodes))));
        }
        match text {
            "lease" => Ok(Self::Lease),
            "memory" => Ok(Self::Memory),
            _ if text.starts_with("redis://") => Ok(Self::Redis(Box::new(RedisStore::single(text)))),
            // It may hold a password, so it is not shown.
            _ => Err("KEYS must be lease, memory, redis://… or redis-cluster://HOST:PORT[,HOST:PORT…]".into()),
        }
    }
}

/// The length of a lease: `LEASE`, in seconds.
pub fn lease() -> Result<Duration, Box<dyn Error + Send + Sync>> {
    match std::env::var("LEASE") {
        Ok(seconds) => Ok(Duration::try_from_secs_f64(seconds.parse()?)?),
        Err(_) => Ok(LEASE),
    }
}
