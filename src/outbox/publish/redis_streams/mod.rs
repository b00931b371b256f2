//! Redis Streams.

mod judge;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, IntoConnectionInfo};

use super::cloud_events::Binding;
use super::{Answer, Publisher, Publishing, Reason};
use crate::error::Error;
use crate::outbox::PendingEvent;
use crate::store::{RedisStore, RedisStoreBuilder};

/// Appends to Redis Streams (XADD). An event's topic is the name of the stream.
///
/// - Acked is what the primary has. Redis replicates and writes to its disk behind that: a failover or a restart may lose
///   acked events, unless [`RedisStoreBuilder::wait_replicas`] and `appendfsync always` narrow that. Where too few replicas
///   have it in time the event is [`Answer::Unknown`].
/// - Entry ids are Redis' own, and it drops no duplicates: an event whose answer was lost is appended again, and consumers
///   drop it by its field `ce-id`.
/// - The fields of an entry are those of a CloudEvent in binary mode, `content-type`, the event's own header fields, and
///   `data`, its payload.
/// - Nothing is cut from a stream unless [`keep_for`](Self::keep_for) or [`keep_last`](Self::keep_last) says so. Cutting
///   does not ask whether a group has read what it cuts.
#[derive(Clone)]
pub struct RedisStreamsPublisher {
    server: RedisStore,
    keep: Keep,
}

#[derive(Clone, Copy, Debug)]
enum Keep {
    Everything,
    For(Duration),
    Last(u64),
}

impl RedisStreamsPublisher {
    /// On one server: `redis://host:port/db`, `rediss://…` where the host's `redis` has TLS, `unix:///path`. The connection
    /// is made when it is first needed.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup): not such an address.
    pub fn single(server: impl IntoConnectionInfo) -> Result<Self, Error> {
        Self::new(RedisStore::single(server))
    }

    /// On whatever servers these settings lead to: one, one behind Sentinel, a Cluster. Their time-outs and replicas count
    /// here; their prefix and lease have no meaning. A cluster's client may append an event twice in one attempt.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup) as in [`RedisStoreBuilder::build`].
    pub fn new(server: RedisStoreBuilder) -> Result<Self, Error> {
        Ok(Self { server: server.build()?, keep: Keep::Everything })
    }

    /// Cuts what is older than this, by this process's clock, about and never too much (`MINID ~`; Redis 6.2 or newer). A
    /// consumer that is away for longer loses events.
    #[must_use]
    pub fn keep_for(self, age: Duration) -> Self {
        Self { keep: Keep::For(age), ..self }
    }

    /// Cuts all but the last so many entries, about and never too much (`MAXLEN ~`). A consumer that is further behind loses
    /// events.
    #[must_use]
    pub fn keep_last(self, entries: u64) -> Self {
        Self { keep: Keep::Last(entries), ..self }
    }

    fn command(&self, event: &PendingEvent) -> Cmd {
        let written = event.event();
        let mut cmd = redis::cmd("XADD");
        cmd.arg(written.topic());
        match self.keep {
            Keep::Everything => {}
            Keep::For(age) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let oldest = now.saturating_sub(age).as_millis();
                cmd.arg("MINID").arg("~").arg(u64::try_from(oldest).unwrap_or_default());
            }
            Keep::Last(entries) => {
                cmd.arg("MAXLEN").arg("~").arg(entries);
            }
        }
        cmd.arg("*");
        for (name, value) in Binding::Redis.fields(event) {
            cmd.arg(&*name).arg(&*value);
        }
        if let Some(media_type) = written.content_type() {
            cmd.arg("content-type").arg(media_type);
        }
        cmd.arg("data").arg(&written.payload_ref()[..]);
        cmd
    }
}

impl Publisher for RedisStreamsPublisher {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move {
            let stream = event.event().topic();
            if stream.is_empty() {
                return Answer::never(Reason::Malformed);
            }
            match self.server.write_once(stream, &self.command(&event)).await {
                Ok(()) => Answer::ACKED,
                Err(unwritten) => judge::judge(&unwritten),
            }
        })
    }
}

impl fmt::Debug for RedisStreamsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreamsPublisher").field("keep", &self.keep).finish_non_exhaustive()
    }
}
