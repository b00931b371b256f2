//! Whose turn it is to write: one queue, in order of arrival, before the file's lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind};

/// How long a request waits to write: in the queue, for a connection and for other processes, all together.
const PATIENCE: Duration = Duration::from_secs(5);

const WAITED: &str = "no turn to write within 5 s: another transaction is open, maybe one that this very request has \
                      begun on the pool; inside a guarded request every write goes through its Tx";

#[derive(Debug)]
pub(super) struct Queue(Arc<Semaphore>);

/// The right to write, held until what was written is committed or undone.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    until: Instant,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Waits for its turn. Dropping the future leaves the queue.
    pub(super) async fn turn(&self) -> Result<Turn, Error> {
        let until = Instant::now() + PATIENCE;
        match timeout_at(until, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn { _permit: permit, until }),
            Ok(Err(closed)) => Err(Error::with_source(ErrorKind::Unavailable, closed)),
            Err(_) => Err(Error::with_source(ErrorKind::Unavailable, WAITED)),
        }
    }
}

impl Turn {
    /// When its holder has waited long enough for other processes.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// The same turn for a new piece of work.
    pub(super) fn afresh(self) -> Self {
        Self { until: Instant::now() + PATIENCE, ..self }
    }
}
