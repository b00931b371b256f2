//! The Redis store: leases on a server that many processes share (S25).

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod append;
mod builder;
mod claim;
mod connection;
mod entry;
mod fault;
mod link;
mod operate;
mod reply;
mod scan;
mod scripts;
mod server;

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{IntoConnectionInfo, Value};

use super::{ClaimRequest, OnUnknown, Purge, Settlement, Store, Verdict, stored};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::fingerprint::{Fingerprint, Match};
use crate::lookup::LookupKey;
use crate::policy::State;
use claim::{Owner, Replicas};
use link::Link;
use reply::{Reply, Seen, Stored};
use scripts::{Step, micros};

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(crate) use append::Unwritten;
pub use builder::RedisStoreBuilder;
pub use claim::RedisClaim;

/// A longer answer is read by a call of its own: a script that carries it would hold the server up for everybody.
const LONGEST_INLINE: &str = "65536";
/// How often a claim is asked again whose record changed between two reads.
const ASKED_AT_MOST: u32 = 3;

/// Keeps keys on Redis: one server, one behind Sentinel, or a Cluster. Any number of processes.
///
/// It is a *lease* store: the claim stands before the handler runs, and what the handler writes elsewhere is not part
/// of it. A handler that is cut off frees its key when the lease ends, and the next attempt runs with a larger
/// [`Fence`](super::Fence). Every instant is the server's.
///
/// # What it cannot promise
/// - A server that restarts without its append-only file has forgotten its keys: finished requests run again, and an
///   attempt that is running is told [`ErrorKind::LeaseLost`] when it ends. With `appendfsync everysec` the last second
///   may be lost.
/// - Replication is asynchronous, so a failover may forget what was written last, and a key may be run twice.
///   [`RedisStoreBuilder::wait_replicas`] narrows that and does not close it.
/// - Only the eviction policy `noeviction` is safe. Every record has an end, so each `volatile-…` policy deletes exactly
///   the records, running claims included. A server with another policy and a bound on its memory is counted and logged
///   as `eviction_policy` when the store connects. A full server refuses new keys: [`ErrorKind::Full`].
///
/// # Clones
/// Clones share the connection; the lease and what follows a lost attempt belong to the handle.
///
/// The types of the crate `redis` in signatures here are outside semver: this crate follows that one.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    prefix: Arc<str>,
    lease: Duration,
    on_unknown: OnUnknown,
    replicas: Option<Replicas>,
}

impl RedisStore {
    /// On one server: `redis://host:port/db`, `rediss://…` where the host's `redis` has TLS, `unix:///path`.
    pub fn single(server: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder::single(server)
    }

    /// On the primary that these sentinels name `name`; asked again for each new connection, so after a failover too.
    pub fn sentinel(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        name: impl Into<String>,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::sentinel(sentinels, name)
    }

    /// On a Redis Cluster, found through any of these nodes.
    pub fn cluster(nodes: impl IntoIterator<Item = impl IntoConnectionInfo>) -> RedisStoreBuilder {
        RedisStoreBuilder::cluster(nodes)
    }

    /// How long a claim is held without a renewal. The layer renews at a third of it. A clone with another lease shares
    /// the records: one store, a lease for each route.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for less than 3 ms: a lease of zero would hold nothing (S5).
    pub fn lease(self, lease: Duration) -> Result<Self, Error> {
        builder::checked(lease)?;
        Ok(Self { lease, ..self })
    }

    /// What follows an attempt whose lease has ended without a settlement. A clone with another choice shares the
    /// records.
    #[must_use]
    pub fn on_unknown(self, on_unknown: OnUnknown) -> Self {
        Self { on_unknown, ..self }
    }

    /// Connects if there is no connection, and looks at every server that has records: its version and its eviction
    /// policy. For a start that is to fail early, and for readiness probes; a claim does not need it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], and [`ErrorKind::Setup`] for a server older than Redis 6.
    ///
    /// # Cancel safety
    /// Safe to drop.
    pub async fn check(&self) -> Result<(), Error> {
        let mut open = self.link.open().await?;
        let nodes = open.connection.nodes().await;
        for node in self.link.seen(&open, nodes).map_err(|error| fault::fault(&error))? {
            let server = open.connection.server(&node).await;
            self.link.judge(&self.link.seen(&open, server).map_err(|error| fault::fault(&error))?)?;
        }
        Ok(())
    }

    /// The record's name. Its tag in braces lets whatever belongs to one operation lie on one node.
    fn key(&self, lookup: &LookupKey) -> Arc<str> {
        let mut key = String::with_capacity(self.prefix.len() + 67);
        key.push_str(&self.prefix);
        key.push_str(":{");
        for byte in lookup.digest() {
            // Writing to a string does not fail.
            let _ = write!(key, "{byte:02x}");
        }
        key.push('}');
        key.into()
    }

    /// A long answer, if the record is still the one that was seen.
    async fn fetch(&self, key: &str, seen: &Seen) -> Result<Option<Bytes>, Error> {
        let (fields, _) = self.link.read(redis::cmd("HMGET").arg(key).arg("t").arg("b")).await?;
        match fields {
            Value::Array(fields) => match <[Value; 2]>::try_from(fields) {
                Ok([Value::BulkString(token), Value::BulkString(answer)]) if token == seen.token => {
                    Ok(Some(answer.into()))
                }
                _ => Ok(None),
            },
            _ => Err(reply::unreadable()),
        }
    }

    /// What the record that was seen says. `None` where it has changed since.
    async fn told(&self, request: &ClaimRequest, key: &str, seen: Seen) -> Result<Option<Verdict<RedisClaim>>, Error> {
        let answer = match &seen.answer {
            Stored::Nothing => None,
            Stored::Here(answer) => Some(answer.clone()),
            Stored::ToFetch if is_replay(request, &seen) => match self.fetch(key, &seen).await? {
                Some(answer) => Some(answer),
                None => return Ok(None),
            },
            Stored::ToFetch => None,
        };
        stored::verdict(request, seen.state, &seen.fingerprint, answer).map(Some)
    }
}

fn is_replay(request: &ClaimRequest, seen: &Seen) -> bool {
    seen.state == State::Completed
        && Fingerprint::from_bytes(&seen.fingerprint).is_some_and(|stored| request.compare(&stored) != Match::Different)
}

impl Store for RedisStore {
    type Claim = RedisClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<RedisClaim>, Error> {
        let lookup = request.lookup();
        let key = self.key(lookup);
        let (lease, retention) = (micros(self.lease), micros(request.retention()));
        let held: &[u8] = if self.on_unknown.holds_from_start() { b"1" } else { b"0" };
        let (token, fingerprint) = (request.token(), request.fingerprint().to_bytes());
        let previous: Vec<[u8; Fingerprint::LEN]> = request.previous().iter().map(Fingerprint::to_bytes).collect();
        let mut args: Vec<&[u8]> = vec![
            token.as_bytes(),
            lease.as_bytes(),
            retention.as_bytes(),
            held,
            LONGEST_INLINE.as_bytes(),
            lookup.scope().as_str().as_bytes(),
            lookup.key().as_str().as_bytes(),
            lookup.endpoint().as_str().as_bytes(),
            &fingerprint,
        ];
        args.extend(previous.iter().map(<[u8; Fingerprint::LEN]>::as_slice));
        for _ in 0..ASKED_AT_MOST {
            let (answer, open) = self.link.run(Step::Claim, &key, &args).await?;
            match Reply::read(answer)? {
                Reply::Claimed { fence, attempt, other_profile } => {
                    if other_profile {
                        emit(Event::OtherProfile);
                    }
                    let owner = Owner {
                        link: Arc::clone(&self.link),
                        key: Arc::clone(&key),
                        token,
                        on_unknown: self.on_unknown,
                        replicas: self.replicas,
                    };
                    if let Some(replicas) = self.replicas
                        && let Err(error) = replicas.confirm(&self.link, open, &key).await
                    {
                        // Nobody runs it; otherwise its lease would have to end first.
                        let _ = Owner { replicas: None, ..owner }.settle(&Settlement::Abandon).await;
                        return Err(error);
                    }
                    return Ok(Verdict::Claimed(RedisClaim { owner, lease: self.lease, fence, attempt }));
                }
                Reply::Seen(seen) => {
                    if let Some(verdict) = self.told(request, &key, seen).await? {
                        return Ok(verdict);
                    }
                }
                Reply::Late => break,
            }
        }
        Err(ErrorKind::Unavailable.into())
    }
}

/// Nothing to do: the server deletes every record at its end by itself.
impl Purge for RedisStore {
    async fn purge(&self, _: u32) -> Result<u64, Error> {
        Ok(0)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.link)
            .field("prefix", &self.prefix)
            .field("lease", &self.lease)
            .field("on_unknown", &self.on_unknown)
            .finish_non_exhaustive()
    }
}
