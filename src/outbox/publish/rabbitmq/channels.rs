//! One connection and its channels.

use std::sync::{Arc, Mutex, PoisonError};

use lapin::options::ConfirmSelectOptions;
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::time::{Instant, timeout_at};

/// What a frame needs for itself.
const FRAME_OVERHEAD: usize = 64;

/// The channels of a connection that no event is on. Whoever takes one has it alone: confirms of the broker are then the
/// answers to its messages, and so is what comes back.
pub(super) struct Channels {
    connection: Connection,
    idle: Mutex<Vec<Arc<Channel>>>,
}

/// A channel that nobody else has. Dropped, it is closed.
pub(super) struct Way {
    pub(super) channel: Arc<Channel>,
    of: Arc<Channels>,
}

impl Way {
    /// For others; only after all its confirms.
    pub(super) fn give_back(self) {
        self.of.lock().push(self.channel);
    }
}

impl Channels {
    pub(super) async fn connect(uri: &AMQPUri, until: Instant) -> Option<Arc<Self>> {
        let properties = ConnectionProperties::default().with_connection_name("outbox".into());
        let connection = timeout_at(until, Connection::connect_uri(uri.clone(), properties)).await.ok()?.ok()?;
        Some(Arc::new(Self { connection, idle: Mutex::default() }))
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.status().connected()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// What the properties of a message may have.
    pub(super) fn frame_bytes(&self) -> usize {
        let frame = self.connection.configuration().frame_max();
        usize::try_from(frame).unwrap_or(usize::MAX).saturating_sub(FRAME_OVERHEAD)
    }

    /// A channel in confirm mode.
    pub(super) async fn take(self: &Arc<Self>) -> lapin::Result<Way> {
        let way = |channel| Way { channel, of: Arc::clone(self) };
        while let Some(channel) = self.pop() {
            if channel.status().connected() {
                return Ok(way(channel));
            }
        }
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(way(Arc::new(channel)))
    }

    fn pop(&self) -> Option<Arc<Channel>> {
        self.lock().pop()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Channel>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
