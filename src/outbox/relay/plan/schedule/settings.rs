//! Numbers of a scheduler.

use std::time::Duration;

use super::super::{Backoff, Rules};

/// For all destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Events of one destination that are out at once.
    pub window_events: usize,
    /// And their bytes.
    pub window_bytes: usize,
    /// Rows read ahead.
    pub ahead: usize,
    /// Rows of one key read ahead.
    pub lane: usize,
    /// Rows of a destination that cannot be asked: more stay in the table.
    pub kept: usize,
    /// Between polls that bring something.
    pub poll_least: Duration,
    /// Between a poll and the next that a commit wakes: writers would pay for polls without a rest.
    pub wake_least: Duration,
    /// Between polls that bring nothing.
    pub poll_idle: Duration,
    /// Between deletions, unless a quarter of a window waits for one: each is a commit beside the writers'.
    pub delete_least: Duration,
    /// Between looks at what operators may change.
    pub look: Duration,
    /// A number must be so old before it counts as settled, see [`Horizon`](super::super::Horizon).
    pub settle: Duration,
    /// After an error of the database.
    pub database: Backoff,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_events: 256,
            window_bytes: 16 << 20,
            ahead: 1_024,
            lane: 64,
            kept: 64,
            poll_least: Duration::from_millis(10),
            wake_least: Duration::from_millis(10),
            poll_idle: Duration::from_secs(1),
            delete_least: Duration::from_millis(50),
            look: Duration::from_secs(1),
            settle: Duration::from_secs(1),
            database: Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(5) },
        }
    }
}

/// For one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destined {
    /// What answers mean.
    pub rules: Rules,
    /// Of an event that has failed.
    pub retry: Backoff,
    /// Of a destination that cannot be asked.
    pub breaker: Backoff,
    /// How many events of one key may be out: 1, unless the publisher keeps their order by itself.
    pub per_key: usize,
}
