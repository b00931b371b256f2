//! A message from its delivery to its commit.

use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::time::Duration;

use super::{Inbox, InboxDialect, InboxTx, Message, Opened};
use crate::error::{Error, ErrorKind};
use crate::layer::unwind::Caught;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Processed<T> {
    /// Processed now, and committed. Acknowledge it.
    First(T),
    /// It was processed before. Acknowledge it.
    Duplicate,
    /// Somebody processes it just now. Have it delivered again.
    Busy {
        /// When, as advice.
        retry_after: Duration,
    },
    /// Another payload was processed under this id. Put it aside, then acknowledge it.
    Conflict,
    /// It has failed too often. Put it aside, then acknowledge it.
    Poison,
}

/// Why a message was not processed: do not acknowledge it.
#[derive(Debug)]
pub enum ProcessError<E> {
    /// The handler's own error. Everything it wrote through its transaction was undone.
    Handler(E),
    /// The inbox: see [`Error::kind`] and [`First::commit`](super::First::commit).
    Inbox(Error),
}

impl<DB: InboxDialect> Inbox<DB> {
    /// Processes a message once: begins a transaction, accepts the message in it, calls `handler` with it, and commits what
    /// the handler wrote together with the mark that the message was processed.
    ///
    /// The handler runs only for the first delivery, at most once a call. Its transaction is its own ([`InboxTx`]), so its
    /// future borrows nothing from here. It must have dropped it when it ends.
    ///
    /// # Errors
    /// [`ProcessError::Handler`] with the handler's error, rolled back. [`ProcessError::Inbox`] where the database was of no
    /// help, before the handler (as [`Inbox::accept`]) or after it (as [`First::commit`](super::First::commit)). The message
    /// can be delivered again in every case, and the redelivery decides.
    ///
    /// # Panics
    /// The handler's panic goes on to the caller, when everything has been rolled back.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler and rolls back. Dropped in the commit, it is committed or undone, and the
    /// redelivery learns which.
    pub async fn process<T, E, F, Fut>(&self, message: &Message, handler: F) -> Result<Processed<T>, ProcessError<E>>
    where
        F: FnOnce(InboxTx<DB>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let first = match self.open(message).await.map_err(ProcessError::Inbox)? {
            Opened::First(first) => first,
            Opened::Duplicate => return Ok(Processed::Duplicate),
            Opened::Busy { retry_after } => return Ok(Processed::Busy { retry_after }),
            Opened::Conflict => return Ok(Processed::Conflict),
            Opened::Poison => return Ok(Processed::Poison),
        };
        let taken = first.tx().await;
        let tx = taken.map_err(|error| ProcessError::Inbox(Error::with_source(ErrorKind::Unavailable, error)))?;
        match Caught::calling(move || handler(tx)).await {
            Ok(Ok(value)) => {
                first.commit().await.map_err(ProcessError::Inbox)?;
                Ok(Processed::First(value))
            }
            Ok(Err(error)) => {
                first.fail().await;
                Err(ProcessError::Handler(error))
            }
            Err(panic) => {
                first.fail().await;
                resume_unwind(panic)
            }
        }
    }
}

impl<T> Processed<T> {
    /// The same with another value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Processed<U> {
        match self {
            Self::First(value) => Processed::First(map(value)),
            Self::Duplicate => Processed::Duplicate,
            Self::Busy { retry_after } => Processed::Busy { retry_after },
            Self::Conflict => Processed::Conflict,
            Self::Poison => Processed::Poison,
        }
    }
}

// By hand, so that the handler may fail with a `Box<dyn Error>`, which is no `Error` itself.
impl<E: fmt::Display> fmt::Display for ProcessError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => error.fmt(f),
            Self::Inbox(_) => f.write_str("the inbox failed"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ProcessError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Handler(_) => None,
            Self::Inbox(error) => Some(error),
        }
    }
}
