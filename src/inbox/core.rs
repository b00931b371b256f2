//! The inbox itself.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;

use super::{InboxBuilder, InboxDialect, MessageId, Part, running};
use crate::db::inbox::{Identity, Rows};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::events::{Kind, Of};
use crate::purge::Batch;

/// Marks messages as processed, each in the transaction of its effects. Clones share everything.
///
/// ```no_run
/// # #[cfg(feature = "sqlite")]
/// # async fn f(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotency::inbox::{Inbox, Message, MessageId, Processed};
///
/// let inbox = Inbox::new(pool, "billing").await?;
/// inbox.migrate().await?;
///
/// let payload = br#"{"order":7}"#;
/// let message = Message::new(MessageId::new("orders", "evt_1")?, payload);
/// let done = inbox
///     .process(&message, async |mut tx| {
///         sqlx::query("INSERT INTO invoices (order_id) VALUES (7)").execute(&mut *tx).await.map(drop)
///     })
///     .await?;
/// match done {
///     Processed::First(()) | Processed::Duplicate => { /* acknowledge */ }
///     Processed::Busy { retry_after } => { /* have it delivered again, later */ }
///     Processed::Conflict | Processed::Poison => { /* to the dead letters, then acknowledge */ }
/// }
/// # Ok(()) }
/// ```
pub struct Inbox<DB: InboxDialect> {
    pub(super) shared: Arc<Shared<DB>>,
}

/// What all clones share.
pub(super) struct Shared<DB: InboxDialect> {
    pub(super) rows: DB::Inbox,
    pub(super) consumer: Part,
    /// The same as a label.
    pub(super) name: Arc<str>,
    pub(super) retention: Duration,
    /// How long a busy message is waited for.
    pub(super) wait: Duration,
    /// What a busy message's next delivery is advised to wait.
    pub(super) retry_after: Duration,
    pub(super) poison_after: Option<NonZeroU32>,
    /// What runs in this process.
    pub(super) running: Arc<running::Table>,
}

impl<DB: InboxDialect> Inbox<DB> {
    /// An inbox with the default settings: see [`Inbox::builder`].
    ///
    /// # Errors
    /// As [`InboxBuilder::build`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn new(pool: Pool<DB>, consumer: impl AsRef<[u8]>) -> Result<Self, Error> {
        Self::builder(pool, consumer).build().await
    }

    /// Settings for the inbox of one consumer. The name of the consumer is part of what is compared (M2): two consumers of
    /// one message both run, also where they share a database. It must not be empty, and must stay the same over
    /// deployments.
    pub fn builder(pool: Pool<DB>, consumer: impl AsRef<[u8]>) -> InboxBuilder<DB> {
        InboxBuilder::new(pool, consumer.as_ref())
    }

    /// Creates the tables of this crate, or brings them to the newest version. Any number of processes may call it at
    /// once.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] where tables cannot be created; [`ErrorKind::Unavailable`] or [`ErrorKind::Conflict`] where
    /// the same call may succeed later.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most some of the migrations done, each of them whole. Call it again.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.shared.rows.migrate().await
    }

    /// Deletes at most `limit` marks and `limit` counts of failures whose retention has ended, of all consumers, and
    /// returns how many. A mark that is older than its retention still makes a redelivery a `Duplicate` until it is
    /// purged (M8). Call it from time to time, from any number of processes. Do not partition the table by time instead: it
    /// would lose its unique key, and with it the promise.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] and its kin. Safe to repeat.
    ///
    /// # Cancel safety
    /// A dropped purge is done or undone, also in part.
    pub async fn purge(&self, limit: u32) -> Result<u64, Error> {
        self.shared.rows.purge(limit).await.map_err(DB::Inbox::error)
    }

    /// One batch of a purger.
    pub(crate) async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        self.shared.rows.purge_batch(limit).await.map_err(DB::Inbox::error)
    }

    /// Counts a failed delivery, for those who call [`Inbox::accept`]: after the rollback, and where the broker does not
    /// count itself. [`Inbox::process`] does it alone. Without [`InboxBuilder::poison_after`] nobody reads the count.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] and its kin: it may or may not be counted.
    ///
    /// # Cancel safety
    /// Dropped, it is counted or not.
    pub async fn record_failure(&self, id: &MessageId) -> Result<(), Error> {
        let shared = &self.shared;
        shared.rows.count_failure(&shared.identity(id), shared.retention).await.map_err(DB::Inbox::error)
    }

    /// Sets the count of failures back to nought, so that a message that was put aside as poison may run again.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] and its kin. Safe to repeat.
    ///
    /// # Cancel safety
    /// Dropped, it is done or not.
    pub async fn forget_failures(&self, id: &MessageId) -> Result<(), Error> {
        self.shared.rows.forget_failures(&self.shared.identity(id)).await.map_err(DB::Inbox::error)
    }
}

impl<DB: InboxDialect> Shared<DB> {
    /// What the events of its messages belong to.
    pub(super) fn of(&self) -> Of<'_> {
        Of::Named(Kind::Consumer, &self.name)
    }

    pub(super) fn identity(&self, id: &MessageId) -> Identity {
        Identity { consumer: self.consumer.clone(), id: id.clone() }
    }
}

impl<DB: InboxDialect> Clone for Inbox<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<DB: InboxDialect> fmt::Debug for Inbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { retention, wait, poison_after, .. } = &*self.shared;
        f.debug_struct("Inbox")
            .field("retention", retention)
            .field("wait", wait)
            .field("poison_after", poison_after)
            .finish_non_exhaustive()
    }
}
