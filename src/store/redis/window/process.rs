//! A message from the question to the mark.

use std::fmt;
use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{DedupGuard, DedupWindow, Entered};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit, emit_error};
use crate::inbox::MessageId;
use crate::layer::unwind::Caught;

/// For how long, and how often at first, a mark is tried again.
const MARK_WITHIN: Duration = Duration::from_secs(3);
const MARK_PAUSE: Duration = Duration::from_millis(50);

/// What became of a message.
#[derive(Debug)]
pub enum Passed<T> {
    /// The handler ran, and the message is marked done. Acknowledge it.
    First(T),
    /// The handler ran, and the message could not be marked: Redis was away, or the time for processing was over.
    /// Acknowledge it all the same: its effect is there, and a redelivery would repeat it.
    Unmarked {
        /// The handler's.
        output: T,
        /// Why it is not marked.
        error: Error,
    },
    /// It was done before. Acknowledge it.
    Duplicate,
    /// Somebody is working on it. Let it come again.
    Busy {
        /// When.
        retry_after: Duration,
    },
}

/// Why a message was not processed. Let it come again.
#[derive(Debug)]
pub enum WindowError<E> {
    /// The window could not be asked; the handler did not run.
    Window(Error),
    /// The handler failed, and the message is free again.
    Handler(E),
}

// By hand, so that a handler may fail with a `Box<dyn Error>`, which is no `Error` itself.
impl<E: fmt::Display> fmt::Display for WindowError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(_) => f.write_str("the dedup window could not be asked"),
            Self::Handler(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for WindowError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Window(error) => Some(error),
            Self::Handler(_) => None,
        }
    }
}

impl DedupWindow {
    /// Asks, runs the handler for a first message, and marks it done. While the handler runs its right is renewed, so the
    /// time for processing may be short: it is what a crash costs.
    ///
    /// # Errors
    /// [`WindowError`]. The handler's error frees the message.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler. The message is free when the time for processing is over.
    ///
    /// # Panics
    /// The handler's panic goes on to the caller; the message is free.
    pub async fn process<F, Fut, T, E>(&self, id: &MessageId, handler: F) -> Result<Passed<T>, WindowError<E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let guard = match self.enter(id).await.map_err(WindowError::Window)? {
            Entered::First(guard) => guard,
            Entered::Duplicate => return Ok(Passed::Duplicate),
            Entered::Busy { retry_after } => return Ok(Passed::Busy { retry_after }),
        };
        let ended = tokio::select! {
            biased;
            ended = Caught::calling(handler) => ended,
            () = renewed(&guard, self.processing / 3) => unreachable!("renewals end with the handler"),
        };
        match ended {
            Ok(Ok(output)) => Ok(match mark(&guard).await {
                Ok(()) => Passed::First(output),
                Err(error) => {
                    emit_error(Event::Unsaved, &error);
                    Passed::Unmarked { output, error }
                }
            }),
            Ok(Err(error)) => {
                give_up(guard).await;
                Err(WindowError::Handler(error))
            }
            Err(payload) => {
                emit(Event::Panicked);
                give_up(guard).await;
                resume_unwind(payload)
            }
        }
    }
}

/// Renews until it is dropped.
async fn renewed(guard: &DedupGuard, pause: Duration) {
    loop {
        sleep(pause).await;
        match guard.renew().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::LeaseLost => {
                emit(Event::LeaseLost);
                return pending().await;
            }
            Err(error) => emit_error(Event::RenewalFailed, &error),
        }
    }
}

/// Marks the message done; a server that is away for a moment is asked again.
async fn mark(guard: &DedupGuard) -> Result<(), Error> {
    let (until, mut pause) = (Instant::now() + MARK_WITHIN, MARK_PAUSE);
    loop {
        match guard.done().await {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() + pause < until => {
                sleep(pause).await;
                pause *= 2;
            }
            marked => return marked,
        }
    }
}

/// Where it cannot be freed it is free when its time is over.
async fn give_up(guard: DedupGuard) {
    if let Err(error) = guard.free().await {
        emit_error(Event::StoreError, &error);
    }
}
