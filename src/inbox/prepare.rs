//! What a message needs before its transaction: a file to fetch, somebody to ask, a while to wait.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::message::is_same;
use super::running::Place;
use super::{Inbox, InboxDialect, InboxTx, Message, Opened, ProcessError, Processed};
use crate::db::inbox::Rows;
use crate::error::Error;

/// What an inbox says to a message that is to be prepared.
#[derive(Debug)]
#[must_use]
pub enum Prepared<DB: InboxDialect> {
    /// Nobody is known to have processed it: do what comes before, then [`Preparation::process`].
    Ready(Preparation<DB>),
    /// It was processed.
    Duplicate,
    /// This process is preparing or processing it just now.
    Busy {
        /// When to have it delivered again, as advice.
        retry_after: Duration,
    },
    /// Another payload was processed under this id.
    Conflict,
}

/// A message that is being prepared: other deliveries in this process are busy until it is dropped. No transaction is
/// open, and no other message waits for it.
#[must_use = "dropped, the message is not processed"]
pub struct Preparation<DB: InboxDialect> {
    inbox: Inbox<DB>,
    message: Message,
    place: Arc<Place>,
}

impl<DB: InboxDialect> Inbox<DB> {
    /// Takes up a message without a transaction, for whatever should not be done inside one: no statement waits and no lock
    /// is held meanwhile, which matters most on SQLite with its one writer.
    ///
    /// What is done before [`Preparation::process`] may be done again by a redelivery, and by another process at the same
    /// time: it must have no effects that count.
    ///
    /// # Errors
    /// As [`Inbox::accept`]; nothing was kept.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn prepare(&self, message: &Message) -> Result<Prepared<DB>, Error> {
        let shared = &self.shared;
        let Some(place) = shared.running.enter(message.id()) else {
            let retry_after = shared.retry_after;
            Opened::<DB>::Busy { retry_after }.tell(self.shared.of());
            return Ok(Prepared::Busy { retry_after });
        };
        match shared.rows.peek(&shared.identity(message.id())).await.map_err(DB::Inbox::error)? {
            Some(stored) if is_same(stored.as_deref(), message) => {
                Opened::<DB>::Duplicate.tell(self.shared.of());
                Ok(Prepared::Duplicate)
            }
            Some(_) => {
                Opened::<DB>::Conflict.tell(self.shared.of());
                Ok(Prepared::Conflict)
            }
            None => Ok(Prepared::Ready(Preparation {
                inbox: self.clone(),
                message: message.clone(),
                place: Arc::new(place),
            })),
        }
    }
}

impl<DB: InboxDialect> Preparation<DB> {
    /// Processes the message now, as [`Inbox::process`] does. It may have become a duplicate meanwhile, by another process.
    ///
    /// # Errors
    /// As [`Inbox::process`].
    ///
    /// # Panics
    /// As [`Inbox::process`].
    ///
    /// # Cancel safety
    /// As [`Inbox::process`].
    pub async fn process<T, E, F, Fut>(self, handler: F) -> Result<Processed<T>, ProcessError<E>>
    where
        F: FnOnce(InboxTx<DB>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let Self { inbox, message, place } = self;
        inbox.process_at(Some(place), &message, handler).await
    }
}

impl<DB: InboxDialect> fmt::Debug for Preparation<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparation").field("message", &self.message).finish_non_exhaustive()
    }
}
