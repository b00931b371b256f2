//! Where the records are, and a connection there.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;

use super::server::Server;

/// How many calls may wait to be written: more than a service has requests at once, so that none waits for another.
const QUEUE: usize = 4096;

/// Whom to ask.
pub(super) enum Target {
    Single(Client),
    /// The primary may be another one after each failover, so it is looked up for every connection.
    Sentinel(Mutex<SentinelClient>),
    Cluster(ClusterClient),
}

/// One connection for all calls: they are written one after the other, and answered in that order. To a cluster, one a
/// node.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A node of a cluster, or the only server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Only,
    At { host: String, port: u16 },
}

impl Target {
    pub(super) async fn connect(&self, connect: Duration, response: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect))
            .set_response_timeout(Some(response))
            .set_pipeline_buffer_size(QUEUE);
        Ok(match self {
            Self::Single(client) => {
                Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Sentinel(client) => {
                Connection::Single(client.lock().await.get_async_connection_with_config(&config).await?)
            }
            Self::Cluster(client) => Connection::Cluster(client.get_async_connection().await?),
        })
    }
}

impl Connection {
    /// Calls whoever has the key in this command.
    pub(super) async fn call(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd).await?.extract_error(),
            Self::Cluster(connection) => connection.req_packed_command(cmd).await?.extract_error(),
        }
    }

    /// How many replicas have what was written to the key's server so far.
    pub(super) async fn wait(&mut self, key: &str, replicas: u32, within: Duration) -> RedisResult<Value> {
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(replicas).arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        match self {
            Self::Single(connection) => connection.req_packed_command(&cmd).await?.extract_error(),
            Self::Cluster(connection) => {
                let route = Route::with_key(key, SlotAddr::Master);
                let route = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                connection.route_command(cmd, route).await?.extract_error()
            }
        }
    }

    /// The servers that have records.
    pub(super) async fn nodes(&mut self) -> RedisResult<Vec<Node>> {
        let Self::Cluster(connection) = self else { return Ok(vec![Node::Only]) };
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("SLOTS");
        let random = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let slots: Vec<Value> = redis::from_redis_value(connection.route_command(cmd, random).await?)?;
        let mut nodes = Vec::new();
        for range in slots {
            let range: Vec<Value> = redis::from_redis_value(range)?;
            // First slot, last slot, then the primary: host, port, id, …
            let primary: Vec<Value> = redis::from_redis_value(range.into_iter().nth(2).unwrap_or(Value::Nil))?;
            let [host, port, ..] = primary.as_slice() else { continue };
            let (host, port) = (redis::from_redis_value_ref(host)?, redis::from_redis_value_ref(port)?);
            let node = Node::At { host, port };
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Ok(nodes)
    }

    /// Several commands in one round trip to one server.
    pub(super) async fn pipeline(&mut self, pipeline: Pipeline, node: &Node) -> RedisResult<Vec<Value>> {
        let count = pipeline.len();
        let values = match (self, node) {
            (Self::Single(connection), _) => connection.req_packed_commands(&pipeline, 0, count).await?,
            (Self::Cluster(connection), node) => {
                let route = match node {
                    Node::Only => SingleNodeRoutingInfo::Random,
                    Node::At { host, port } => SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port },
                };
                connection.route_pipeline(pipeline, 0, count, route).await?
            }
        };
        values.into_iter().map(Value::extract_error).collect()
    }

    /// What one server says of itself. Unknown where it does not let us ask.
    pub(super) async fn server(&mut self, node: &Node) -> RedisResult<Server> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("INFO").arg("server").cmd("INFO").arg("memory");
        match self.pipeline(pipeline, node).await {
            Ok(values) => {
                let texts: Vec<String> = values
                    .into_iter()
                    .map(redis::from_redis_value)
                    .collect::<Result<_, _>>()
                    .map_err(RedisError::from)?;
                Ok(Server::parse(&texts.concat()))
            }
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(Server::default()),
            Err(error) => Err(error),
        }
    }
}
