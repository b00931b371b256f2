//! Operators' calls.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;

use super::Outbox;
use super::seen::{DeadLetter, DeadLetters, FailingEvent, Stats};
use crate::db::OutboxDialect;
use crate::db::outbox::{Pause, Queue};
use crate::error::{Error, ErrorKind};
use crate::purge::Batch;

/// For operators. All calls are safe to repeat, and none waits for a transaction that enqueues.
///
/// # Errors
/// Of each call: [`ErrorKind::Unavailable`] if the database cannot be reached or does not answer in time,
/// [`ErrorKind::Conflict`] where it gave the call up in favour of another one, [`ErrorKind::Setup`] without a pool or tables.
impl<DB: OutboxDialect> Outbox<DB> {
    /// How the outbox stands.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.ask(async |queue| queue.stats().await).await
    }

    /// Holds all events of a destination back, for every relay, until they are resumed; a restart does not resume them. What
    /// is being published at this moment still is. Relays notice within some seconds.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    pub async fn pause(&self, destination: &str) -> Result<(), Error> {
        self.set_paused(destination, None, true).await
    }

    /// The same for one key of a destination.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    pub async fn pause_key(&self, destination: &str, key: &str) -> Result<(), Error> {
        self.set_paused(destination, Some(key), true).await
    }

    /// Ends [`Outbox::pause`]. Keys that are paused by themselves stay so.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    pub async fn resume(&self, destination: &str) -> Result<(), Error> {
        self.set_paused(destination, None, false).await
    }

    /// Ends [`Outbox::pause_key`].
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    pub async fn resume_key(&self, destination: &str, key: &str) -> Result<(), Error> {
        self.set_paused(destination, Some(key), false).await
    }

    /// The destinations, and keys of them, that are paused.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn paused(&self) -> Result<Vec<(String, Option<String>)>, Error> {
        let paused = self.ask(async |queue| queue.paused().await).await?;
        Ok(paused.into_iter().map(|pause| (pause.destination, pause.key)).collect())
    }

    /// Failing events, those first that wait for an operator, then the oldest first. Payloads are in their stored form.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn failing(&self, limit: u32) -> Result<Vec<FailingEvent>, Error> {
        self.ask(async |queue| queue.list_failing(limit).await).await
    }

    /// Has a failing event or a dead letter published anew, with the same id. A failing event keeps its place in its key; a
    /// dead letter goes to the end of it. `false`: there is neither by this id.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone, for all of its events alike.
    pub async fn redrive(&self, id: Uuid) -> Result<bool, Error> {
        let failing = self.ask(async |queue| queue.redrive_failing(id).await).await?;
        let redriven = failing || self.redrive_dead(&DeadLetters::with_id(id), 1).await? > 0;
        self.wake();
        Ok(redriven)
    }

    /// Deletes a failing event, so that its key goes on without it, or a dead letter. `false`: there is neither by this id.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone, for all of its events alike.
    pub async fn discard(&self, id: Uuid) -> Result<bool, Error> {
        let failing = self.ask(async |queue| queue.discard_failing(id).await).await?;
        let discarded = failing || self.discard_dead(&DeadLetters::with_id(id), 1).await? > 0;
        self.wake();
        Ok(discarded)
    }

    /// At most so many dead letters, the oldest first. Payloads are in their stored form.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn dead_letters(&self, which: &DeadLetters, limit: u32) -> Result<Vec<DeadLetter>, Error> {
        self.ask(async |queue| queue.dead(which, limit).await).await
    }

    /// How many dead letters [`Outbox::redrive_dead`] or [`Outbox::discard_dead`] would take: a dry run.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn count_dead(&self, which: &DeadLetters, limit: u32) -> Result<u64, Error> {
        self.ask(async |queue| queue.count_dead(which, limit).await).await
    }

    /// Has at most so many dead letters published anew, the oldest first, each at the end of its key. Returns how many.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone, for all of its events alike.
    pub async fn redrive_dead(&self, which: &DeadLetters, limit: u32) -> Result<u64, Error> {
        let redriven = self.ask(async |queue| queue.redrive_dead(which, limit).await).await?;
        self.wake();
        Ok(redriven)
    }

    /// Deletes at most so many dead letters, the oldest first. Returns how many.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone, for all of its events alike.
    pub async fn discard_dead(&self, which: &DeadLetters, limit: u32) -> Result<u64, Error> {
        self.ask(async |queue| queue.discard_dead(which, limit).await).await
    }

    /// Deletes at most so many dead letters that are older than
    /// [`OutboxBuilder::dead_retention`](super::OutboxBuilder::dead_retention). Returns how many. Call it now and then, until
    /// it returns less than `limit`. Pending, failing and deferred events are never purged.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone, also in part.
    pub async fn purge(&self, limit: u32) -> Result<u64, Error> {
        let older_than = self.shared.settings.dead_retention;
        self.ask(async |queue| queue.purge(older_than, limit).await).await
    }

    /// One batch of a purger.
    pub(crate) async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        let (queue, older_than) = (self.queue()?, self.shared.settings.dead_retention);
        let purged = queue.purge_batch(older_than, limit);
        within(self.shared.settings.limit, purged).await?.map_err(DB::Queue::error)
    }

    async fn set_paused(&self, destination: &str, key: Option<&str>, paused: bool) -> Result<(), Error> {
        let pause = Pause { destination: destination.to_owned(), key: key.map(str::to_owned) };
        self.ask(async |queue| queue.set_paused(&pause, paused).await).await?;
        self.wake();
        Ok(())
    }

    async fn ask<'q, T, F>(&'q self, call: impl FnOnce(&'q DB::Queue) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        within(self.shared.settings.limit, call(self.queue()?)).await?.map_err(DB::Queue::error)
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = T>) -> Result<T, Error> {
    timeout(limit, call).await.map_err(|elapsed| Error::with_source(ErrorKind::Unavailable, elapsed))
}
