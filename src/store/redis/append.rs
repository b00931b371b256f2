//! An entry of a stream, written over a store's connection: for the publisher of that name.

use redis::{Cmd, RedisError};

use super::RedisStore;
use super::link::Failed;

/// Why an entry may not be there.
pub(crate) enum Unwritten {
    /// There was no connection: it was not sent.
    NotSent,
    /// The server or the connection said so.
    Called(RedisError),
    /// It is there, and too few replicas have it.
    TooFewReplicas,
}

impl RedisStore {
    /// Sends a command that writes under this key, once, and asks the replicas where the store does so.
    ///
    /// # Cancel safety
    /// Dropped, it was written or not.
    pub(crate) async fn write_once(&self, key: &str, cmd: &Cmd) -> Result<(), Unwritten> {
        let (_, open) = self.link.once_only(cmd).await.map_err(|failed| match failed {
            Failed::Connecting(_) => Unwritten::NotSent,
            Failed::Called(error) => Unwritten::Called(error),
        })?;
        match self.replicas {
            Some(replicas) => replicas.confirm(&self.link, open, key).await.map_err(|_| Unwritten::TooFewReplicas),
            None => Ok(()),
        }
    }
}
