//! Instants as the log lines of the services show them, so that both can be laid side by side.

use std::time::{Duration, Instant, SystemTime};

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    at: SystemTime,
}

impl Clock {
    pub fn start() -> Self {
        Self { began: Instant::now(), at: SystemTime::now() }
    }

    /// The time of day, UTC, in milliseconds.
    pub fn at(&self, instant: Instant) -> String {
        let since = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let millis = (since + instant.saturating_duration_since(self.began)).as_millis();
        let (seconds, millis) = (millis / 1000, millis % 1000);
        format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
    }
}
