//! Into the outbox, in the caller's transaction.

use sqlx::Database;
use uuid::Uuid;

use super::bucket::Bucket;
use super::builder::Settings;
use super::check::{check, well_formed};
use super::event::Event;
use super::{Outbox, headers};
use crate::db::outbox::{NewEvent, Rows};
use crate::db::{Dialect, InTransaction, OutboxDialect, is_retryable};

/// The most events of one batch.
const MOST: usize = 1_000;
/// The most bytes of one batch: within the packets that servers take by default.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// Why an event was not enqueued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// It could not be sent as it is. Nothing was written, the transaction stands.
    #[error("not an event that can be sent: {0}")]
    Invalid(&'static str),
    /// It is larger than the outbox takes. Nothing was written, the transaction stands.
    #[error("an event of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Its own size in bytes.
        size: usize,
        /// The outbox's limit in bytes.
        limit: usize,
    },
    /// More than 1,000 events, or more than 8 MiB, at once. Nothing was written, the transaction stands: enqueue them in
    /// parts.
    #[error("a batch of {events} events and {bytes} bytes is too large for one statement")]
    BatchTooLarge {
        /// How many events.
        events: usize,
        /// Bytes of all of them.
        bytes: usize,
    },
    /// An event with this id is in the outbox already, or twice in the batch. Nothing of the call was written; on Postgres
    /// the transaction is aborted, elsewhere it stands.
    #[error("an event with this id is in the outbox already")]
    Duplicate(#[source] sqlx::Error),
    /// The database refused, or cannot be reached. What has become of the transaction is as after any other statement.
    #[error("the database did not take the event")]
    Database(#[source] sqlx::Error),
}

impl EnqueueError {
    /// Whether the database gave the transaction up in favour of another one, so that the same request may succeed at once.
    #[must_use]
    pub fn is_retryable<DB: Dialect>(&self) -> bool {
        matches!(self, Self::Database(error) if is_retryable::<DB>(error))
    }
}

impl<DB: OutboxDialect> Outbox<DB> {
    /// Writes an event in the caller's transaction: it is published if that commits, and never if it does not. Returns its
    /// id. One round trip, once the statement is prepared on the connection.
    ///
    /// **Order.** Of two writers of one key the later one must begin to enqueue after the earlier one has committed: take the
    /// key's lock first (`SELECT … FOR UPDATE` of the row that the key stands for, or an UPDATE of it), then enqueue.
    ///
    /// # Errors
    /// See [`EnqueueError`].
    ///
    /// # Cancel safety
    /// As any statement of the caller's on this connection: dropped, the event is in the transaction or not. Roll back.
    pub async fn enqueue(&self, tx: &mut impl InTransaction<DB>, event: &Event) -> Result<Uuid, EnqueueError> {
        let new = self.shared.settings.prepare(event)?;
        let id = new.id;
        self.insert(tx, &[new]).await?;
        Ok(id)
    }

    /// Writes events in their order, in one statement: all or none. Deferred ones among them are a second statement. Returns
    /// their ids, in the same order.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`], and [`EnqueueError::BatchTooLarge`].
    ///
    /// # Cancel safety
    /// As [`Outbox::enqueue`].
    pub async fn enqueue_all(
        &self,
        tx: &mut impl InTransaction<DB>,
        events: &[Event],
    ) -> Result<Vec<Uuid>, EnqueueError> {
        let prepared: Result<Vec<_>, _> = events.iter().map(|event| self.shared.settings.prepare(event)).collect();
        let mut prepared = prepared?;
        let bytes = events.iter().map(Event::size).sum();
        if events.len() > MOST || bytes > MOST_BYTES.max(self.shared.settings.max_size) {
            return Err(EnqueueError::BatchTooLarge { events: events.len(), bytes });
        }
        let ids = prepared.iter().map(|new| new.id).collect();
        // What is deferred goes behind, in its order.
        prepared.sort_by_key(|new| new.due.is_some());
        self.insert(tx, &prepared).await?;
        Ok(ids)
    }

    async fn insert(&self, tx: &mut impl InTransaction<DB>, prepared: &[NewEvent<'_>]) -> Result<(), EnqueueError> {
        let rows = &self.shared.rows;
        let connection: &mut <DB as Database>::Connection = tx.connection();
        let at = prepared.partition_point(|new| new.due.is_none());
        let (now, later) = prepared.split_at(at);
        let mut done = Ok(());
        if !now.is_empty() {
            done = rows.insert(&mut *connection, now).await;
        }
        if done.is_ok() && !later.is_empty() {
            done = rows.defer(connection, later).await;
        }
        done.map_err(|error| match DB::Rows::is_duplicate(&error) {
            true => EnqueueError::Duplicate(error),
            false => EnqueueError::Database(error),
        })
    }
}

impl Settings {
    fn prepare<'e>(&self, event: &'e Event) -> Result<NewEvent<'e>, EnqueueError> {
        check(event, self.max_size)?;
        let id = event.id.unwrap_or_else(Uuid::now_v7);
        let payload = event.payload.clone();
        let current = || self.trace.as_ref().and_then(|current| current());
        Ok(NewEvent {
            id,
            bucket: Bucket::of(&event.destination, event.key.as_deref(), &id),
            event,
            payload: self.codec.as_ref().map_or(payload.clone(), |codec| codec.encode(payload)),
            headers: headers::to_text(&event.headers),
            trace: event.trace.clone().or_else(current).and_then(well_formed),
            due: event.due,
        })
    }
}
