//! Where servers are, before anybody has connected.

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult};
use tokio::sync::Mutex;

use super::connection::Target;
use super::fault::fault;
use super::link::Link;
use crate::error::{Error, ErrorKind};

/// How often the crate asks a cluster again within one call, and how long it waits before, in milliseconds.
const CLUSTER_RETRIES: u32 = 3;
const CLUSTER_PAUSE: (u64, u64) = (10, 100);

/// One server, the primary behind sentinels, or a cluster; an address that cannot be read is told when it is used.
pub(super) enum Place {
    Single(RedisResult<ConnectionInfo>),
    Sentinel { sentinels: RedisResult<Vec<ConnectionInfo>>, name: String, node: Option<SentinelNodeConnectionInfo> },
    Cluster(RedisResult<Vec<ConnectionInfo>>),
}

impl Place {
    pub(super) fn single(server: impl IntoConnectionInfo) -> Self {
        Self::Single(server.into_connection_info())
    }

    pub(super) fn sentinel(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        name: impl Into<String>,
    ) -> Self {
        Self::Sentinel { sentinels: all(sentinels), name: name.into(), node: None }
    }

    pub(super) fn cluster(nodes: impl IntoIterator<Item = impl IntoConnectionInfo>) -> Self {
        Self::Cluster(all(nodes))
    }

    /// How the servers that sentinels name are spoken to.
    pub(super) fn speak_to_nodes(&mut self, settings: SentinelNodeConnectionInfo) {
        if let Self::Sentinel { node, .. } = self {
            *node = Some(settings);
        }
    }

    /// A link to it, not connected yet.
    pub(super) fn link(self, connect: Duration, response: Duration) -> Result<Link, Error> {
        let target = self.target(connect, response);
        let target = target.map_err(|error| Error::with_source(ErrorKind::Setup, fault(&error)))?;
        Ok(Link::new(target, connect, response))
    }

    fn target(self, connect: Duration, response: Duration) -> Result<Target, RedisError> {
        Ok(match self {
            Self::Single(server) => Target::Single(Client::open(server?)?),
            Self::Sentinel { sentinels, name, node } => {
                Target::Sentinel(Mutex::new(SentinelClient::build(sentinels?, name, node, SentinelServerType::Master)?))
            }
            Self::Cluster(nodes) => Target::Cluster(
                ClusterClientBuilder::new(nodes?)
                    .connection_timeout(connect)
                    .response_timeout(response)
                    .overall_response_timeout(Some(response))
                    .retries(CLUSTER_RETRIES)
                    .min_retry_wait(CLUSTER_PAUSE.0)
                    .max_retry_wait(CLUSTER_PAUSE.1)
                    .build()?,
            ),
        })
    }
}

pub(super) fn setup(what: &'static str) -> Error {
    Error::with_source(ErrorKind::Setup, what)
}

fn all(addresses: impl IntoIterator<Item = impl IntoConnectionInfo>) -> RedisResult<Vec<ConnectionInfo>> {
    addresses.into_iter().map(IntoConnectionInfo::into_connection_info).collect()
}
