//! The settings of a Redis store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::IntoConnectionInfo;
use redis::sentinel::SentinelNodeConnectionInfo;

use super::RedisStore;
use super::claim::Replicas;
use super::place::{Place, setup};
use crate::error::Error;
use crate::store::OnUnknown;

/// Builds a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    place: Place,
    prefix: String,
    lease: Duration,
    on_unknown: OnUnknown,
    connect_timeout: Duration,
    response_timeout: Duration,
    replicas: Option<Replicas>,
}

/// A lease that is shorter than the clocks and networks it is made of holds nothing (S5).
pub(super) fn checked(lease: Duration) -> Result<(), Error> {
    if lease < Duration::from_millis(3) {
        return Err(setup("a lease must last at least 3 ms"));
    }
    Ok(())
}

/// The braces would choose the node.
pub(super) fn check_prefix(prefix: &str) -> Result<(), Error> {
    if prefix.is_empty() || prefix.contains(['{', '}']) {
        return Err(setup("a prefix must not be empty nor have braces"));
    }
    Ok(())
}

impl RedisStoreBuilder {
    fn new(place: Place) -> Self {
        Self {
            place,
            prefix: "idempotency".to_owned(),
            lease: Duration::from_secs(30),
            on_unknown: OnUnknown::default(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(2),
            replicas: None,
        }
    }

    pub(super) fn single(server: impl IntoConnectionInfo) -> Self {
        Self::new(Place::single(server))
    }

    pub(super) fn sentinel(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        name: impl Into<String>,
    ) -> Self {
        Self::new(Place::sentinel(sentinels, name))
    }

    pub(super) fn cluster(nodes: impl IntoIterator<Item = impl IntoConnectionInfo>) -> Self {
        Self::new(Place::cluster(nodes))
    }

    /// How the servers that sentinels name are spoken to: TLS, user, password, database. No effect elsewhere.
    pub fn sentinel_node(mut self, settings: SentinelNodeConnectionInfo) -> Self {
        self.place.speak_to_nodes(settings);
        self
    }

    /// How the names of records begin (`idempotency`). Stores with other prefixes share no records.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a claim is held without a renewal (30 s), at least 3 ms.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What follows an attempt whose lease has ended without a settlement.
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.on_unknown = on_unknown;
        self
    }

    /// How long connecting may take (1 s), finding the primary included.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// How long a server may take to answer a call (2 s), the retries on a cluster included. Then the claim is
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable).
    pub fn response_timeout(mut self, response_timeout: Duration) -> Self {
        self.response_timeout = response_timeout;
        self
    }

    /// Lets a claim, a settlement and [`Attempt::dispatching`](crate::Attempt::dispatching) count only when so many
    /// replicas have it within this time (`WAIT`); otherwise the call fails. Not set: none are asked.
    ///
    /// One more round trip each. The connection answers nothing else meanwhile, so use a short time. A failover to a
    /// replica that was not among them may still forget the record.
    pub fn wait_replicas(mut self, count: u32, within: Duration) -> Self {
        self.replicas = Some(Replicas { count, within });
        self
    }

    /// The store. Nothing is connected yet: a server that is down now does not keep the service from starting. See
    /// [`RedisStore::check`].
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup): an address that cannot be read, a lease of less than 3 ms, a prefix that is empty or has
    /// braces (they would choose the node), replicas that may take longer than an answer.
    pub fn build(self) -> Result<RedisStore, Error> {
        checked(self.lease)?;
        check_prefix(&self.prefix)?;
        // `WAIT` with 0 would wait without an end.
        if self.replicas.is_some_and(|replicas| {
            replicas.within < Duration::from_millis(1) || replicas.within >= self.response_timeout
        }) {
            return Err(setup("replicas must have at least 1 ms, and less than the response time-out"));
        }
        Ok(RedisStore {
            link: Arc::new(self.place.link(self.connect_timeout, self.response_timeout)?),
            prefix: self.prefix.into(),
            lease: self.lease,
            on_unknown: self.on_unknown,
            replicas: self.replicas,
        })
    }
}

impl fmt::Debug for RedisStoreBuilder {
    // An address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("lease", &self.lease)
            .field("on_unknown", &self.on_unknown)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const URL: &str = "redis://127.0.0.1:1";

    fn refused(builder: RedisStoreBuilder) {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Setup);
    }

    // S5, case L02
    #[test]
    fn a_lease_of_zero_is_refused() {
        refused(RedisStore::single(URL).lease(Duration::ZERO));
        let store = RedisStore::single(URL).build().unwrap();
        assert_eq!(store.lease(Duration::from_millis(2)).unwrap_err().kind(), ErrorKind::Setup);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        refused(RedisStore::single("not an address"));
        refused(RedisStore::cluster(Vec::<&str>::new()));
        refused(RedisStore::sentinel(Vec::<&str>::new(), "primary"));
        refused(RedisStore::single(URL).prefix(""));
        refused(RedisStore::single(URL).prefix("a{b}"));
        refused(RedisStore::single(URL).wait_replicas(1, Duration::ZERO));
        refused(RedisStore::single(URL).wait_replicas(1, Duration::from_secs(2)));
    }

    // H9
    #[test]
    fn no_password_is_shown() {
        let builder = RedisStore::single("redis://user:secret@127.0.0.1:1");
        assert!(!format!("{builder:?}").contains("secret"));
        assert!(!format!("{:?}", builder.build().unwrap()).contains("secret"));
    }
}
