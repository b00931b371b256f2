//! A clock that a test turns by hand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// Stands still until it is advanced. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Duration>>);

impl ManualClock {
    /// Turns it forward.
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
