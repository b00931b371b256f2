//! A dedup window: which messages were processed lately, on a server that consumers share (M10).

mod builder;
mod guard;
mod process;

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use redis::{IntoConnectionInfo, Value};
use sha2::{Digest, Sha256};

use super::fault::fault;
use super::link::Link;
use super::place::setup;
use super::reply::{int, unreadable};
use super::scripts::Step;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit_error};
use crate::inbox::MessageId;
use crate::store::Token;

pub use builder::DedupWindowBuilder;
pub use guard::DedupGuard;
pub use process::{Passed, WindowError};

const DOMAIN: &[u8] = b"idempotency/window/1\0";
/// Between these an asker is sent away: whoever works on the message may be done at any moment.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Tells for a while which messages were processed, on Redis: one server, one behind Sentinel, or a Cluster.
///
/// For consumers whose effects are not in a database with an [inbox](crate::inbox). The mark of a message and its effect
/// are two steps here, so a crash between them repeats the effect: a handler must bear that, or call others with an id that
/// they know again. It does keep two consumers from working on one message at once, and sends most duplicates away.
///
/// A message is *processing* for a short while ([`processing`](DedupWindowBuilder::processing)) under its owner's random
/// token, then *done* for the [`window`](DedupWindowBuilder::window). Only the owner can mark it done, renew it or free it:
/// one that was too slow changes nothing.
///
/// # What it cannot promise
/// - A redelivery after the window runs again. The window must be longer than whatever can bring a message back: the
///   broker's redeliveries, a redrive by hand, a replay.
/// - Redis may forget what it was told last: in a restart without an append-only file, in a failover. Then a message runs
///   again.
/// - A server that deletes records when its memory is full (any policy but `noeviction`) forgets messages that it must
///   know. It is counted and logged as `eviction_policy` when the window connects, and [`DedupWindow::check`] refuses it.
///
/// The types of the crate `redis` in signatures here are outside semver: this crate follows that one.
#[derive(Clone)]
pub struct DedupWindow {
    link: Arc<Link>,
    prefix: Arc<str>,
    consumer: Arc<str>,
    processing: Duration,
    window: Duration,
    open_without_redis: bool,
}

/// Whether a message is to be processed.
#[derive(Debug)]
pub enum Entered {
    /// Process it, then mark it done or free it.
    First(DedupGuard),
    /// It was done: acknowledge it.
    Duplicate,
    /// Somebody is working on it: let it come again.
    Busy {
        /// When to ask again.
        retry_after: Duration,
    },
}

impl DedupWindow {
    /// On one server: `redis://host:port/db`, `rediss://…` where the host's `redis` has TLS, `unix:///path`.
    ///
    /// `consumer` is what the host calls this consumer: two consumers of one message both process it (case B25).
    pub fn single(server: impl IntoConnectionInfo, consumer: impl Into<String>) -> DedupWindowBuilder {
        DedupWindowBuilder::single(server, consumer.into())
    }

    /// On the primary that these sentinels name `name`; asked again for each new connection.
    pub fn sentinel(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        name: impl Into<String>,
        consumer: impl Into<String>,
    ) -> DedupWindowBuilder {
        DedupWindowBuilder::sentinel(sentinels, name, consumer.into())
    }

    /// On a Redis Cluster, found through any of these nodes.
    pub fn cluster(
        nodes: impl IntoIterator<Item = impl IntoConnectionInfo>,
        consumer: impl Into<String>,
    ) -> DedupWindowBuilder {
        DedupWindowBuilder::cluster(nodes, consumer.into())
    }

    /// Connects if there is no connection, and looks at every server that has records. Call it at the start of the service.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], and [`ErrorKind::Setup`] for a server older than Redis 6 or one that deletes records when
    /// its memory is full (case B59).
    ///
    /// # Cancel safety
    /// Safe to drop.
    pub async fn check(&self) -> Result<(), Error> {
        let mut open = self.link.open().await?;
        let nodes = open.connection.nodes().await;
        for node in self.link.seen(&open, nodes).map_err(|error| fault(&error))? {
            let server = open.connection.server(&node).await;
            let server = self.link.seen(&open, server).map_err(|error| fault(&error))?;
            self.link.judge(&server)?;
            if server.evicts() {
                return Err(setup("the server's maxmemory-policy must be noeviction"));
            }
        }
        Ok(())
    }

    /// Asks whether a message is to be processed. Never waits for whoever works on it.
    ///
    /// # Errors
    /// The server's: do not process the message, let it come again. With
    /// [`run_unprotected_without_redis`](DedupWindowBuilder::run_unprotected_without_redis) a server that cannot be reached
    /// is no error: the message is the first, and nothing is recorded.
    ///
    /// # Cancel safety
    /// Dropped, the message may be *processing* until that ends by itself.
    pub async fn enter(&self, id: &MessageId) -> Result<Entered, Error> {
        let (key, token) = (self.key(id), Token::random());
        let processing = millis(self.processing);
        let answer = match self.link.run(Step::WindowEnter, &key, &[token.as_bytes(), processing.as_bytes()]).await {
            Ok((answer, _)) => answer,
            Err(error) if self.open_without_redis && error.kind() == ErrorKind::Unavailable => {
                emit_error(Event::RanUnprotected, &error);
                return Ok(Entered::First(DedupGuard::unprotected()));
            }
            Err(error) => return Err(error),
        };
        let Value::Array(answer) = answer else { return Err(unreadable()) };
        match int(answer.first())? {
            0 => Ok(Entered::Duplicate),
            1 => {
                let spans = (self.processing, self.window);
                Ok(Entered::First(DedupGuard::new(Arc::clone(&self.link), key, token, spans)))
            }
            2 => {
                let left = Duration::from_millis(int(answer.get(1)).unwrap_or_default());
                Ok(Entered::Busy { retry_after: left.clamp(ASK_AGAIN.0, ASK_AGAIN.1) })
            }
            _ => Err(ErrorKind::Unavailable.into()),
        }
    }

    /// The record's name: a digest, so that no part of a message is shown and none is too long.
    fn key(&self, id: &MessageId) -> String {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        for part in [self.consumer.as_bytes(), id.source().as_bytes(), id.id().as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut key = String::with_capacity(self.prefix.len() + 67);
        key.push_str(&self.prefix);
        key.push_str(":{");
        for byte in hash.finalize() {
            // Writing to a string does not fail.
            let _ = write!(key, "{byte:02x}");
        }
        key.push('}');
        key
    }
}

/// A span of time as an argument. Longer than a thousand years is for ever.
fn millis(span: Duration) -> String {
    const LONGEST: u128 = 1000 * 365 * 24 * 60 * 60 * 1000;
    span.as_millis().clamp(1, LONGEST).to_string()
}

impl fmt::Debug for DedupWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupWindow")
            .field("link", &self.link)
            .field("prefix", &self.prefix)
            .field("consumer", &self.consumer)
            .field("processing", &self.processing)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
