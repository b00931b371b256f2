//! The time of stores that have no server to ask.

use std::fmt;
use std::time::{Duration, Instant};

/// A monotonic clock. Only the memory store needs one; every other store uses its server's.
pub trait Clock: Send + Sync + 'static {
    /// The time since some fixed moment. Never goes back.
    fn now(&self) -> Duration;
}

/// The process's monotonic clock.
#[derive(Clone, Copy)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemClock")
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
