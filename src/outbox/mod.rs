//! The producer's side: an event is written in the transaction that it tells of, and published afterwards.
//!
//! [`Outbox::enqueue`] writes an [`Event`] in the caller's transaction. A relay publishes it once that is committed, and
//! again if it cannot tell whether it has arrived: at least once, with the same id each time.

mod bucket;
mod builder;
mod check;
mod enqueue;
mod event;
pub(crate) mod headers;
mod operate;
pub mod publish;
pub mod relay;
mod seen;

use std::fmt;
use std::sync::Arc;

use sqlx::Pool;
use tokio::sync::Notify;

pub use bucket::{Bucket, Place};
pub use builder::OutboxBuilder;
pub use enqueue::EnqueueError;
pub use event::{Event, PendingEvent, TraceContext};
pub use seen::{DeadLetter, DeadLetters, FailingEvent, Stats};

use crate::db::OutboxDialect;
use crate::db::outbox::Queue;
use crate::error::{Error, ErrorKind};
use builder::Settings;

/// A table of events on their way, in the same database as what they tell of.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn doc(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotency::outbox::{Event, Outbox};
///
/// let outbox = Outbox::new(pool.clone()).await?;
/// outbox.migrate().await?;
///
/// let mut tx = pool.begin().await?;
/// sqlx::query("UPDATE customers SET orders = orders + 1 WHERE id = 7").execute(&mut *tx).await?;
/// let event = Event::new("broker", "orders.placed", "order.placed", "/orders").key("customer-7").bytes("{}");
/// outbox.enqueue(&mut tx, &event).await?;
/// tx.commit().await?;
/// outbox.wake();
/// # Ok(())
/// # }
/// ```
pub struct Outbox<DB: OutboxDialect> {
    shared: Arc<Shared<DB>>,
}

/// What all clones share.
struct Shared<DB: OutboxDialect> {
    rows: DB::Rows,
    queue: Option<DB::Queue>,
    settings: Settings,
    poke: Notify,
}

impl<DB: OutboxDialect> Outbox<DB> {
    /// An outbox with the default settings on the tables that the pool leads to.
    ///
    /// # Errors
    /// As [`OutboxBuilder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn new(pool: Pool<DB>) -> Result<Self, Error> {
        Self::builder().build(pool).await
    }

    /// An outbox with settings of its own.
    pub fn builder() -> OutboxBuilder<DB> {
        OutboxBuilder::new()
    }

    /// Creates the tables, or brings them to the newest version: those of stores and inboxes on the same engine too, whose
    /// history they share. Any number of processes may call it at once.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] where the role may not create tables; [`ErrorKind::Unavailable`] if the database cannot be
    /// reached.
    ///
    /// # Cancel safety
    /// Each migration is one transaction (on MySQL, repeatable statements): dropped, the next call goes on from there.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.queue()?.migrate().await
    }

    /// Tells the relay in this process that something has been committed. It looks by itself too, so that nothing depends
    /// on this; with it, an event leaves at once, or 10 ms after the relay's last look (M41).
    pub fn wake(&self) {
        self.shared.poke.notify_one();
    }

    /// Where a relay of this process waits to be woken.
    #[allow(dead_code, reason = "for the relay")]
    pub(crate) fn poke(&self) -> &Notify {
        &self.shared.poke
    }

    /// For tests of applications.
    #[cfg(feature = "testing")]
    pub(crate) fn rows(&self) -> &DB::Rows {
        &self.shared.rows
    }

    /// For relays and operators.
    pub(crate) fn queue(&self) -> Result<&DB::Queue, Error> {
        let queue = self.shared.queue.as_ref();
        queue.ok_or_else(|| Error::with_source(ErrorKind::Setup, "an outbox without a pool can only enqueue"))
    }

    /// A pending event with its payload as the application has written it.
    #[allow(dead_code, reason = "for the relay")]
    pub(crate) fn decoded(&self, mut pending: PendingEvent) -> Result<PendingEvent, Error> {
        if let Some(codec) = &self.shared.settings.codec {
            let decoded = codec.decode(pending.event.payload);
            pending.event.payload = decoded.map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
        }
        Ok(pending)
    }
}

impl<DB: OutboxDialect> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<DB: OutboxDialect> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("max_size", &self.shared.settings.max_size).finish_non_exhaustive()
    }
}
