//! How often a busy message is asked for again (M4).

use std::time::Duration;

use tokio::time::{Instant, sleep};
use uuid::Uuid;

const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(320);

/// Waits longer each time, and never past its end.
#[derive(Debug)]
pub(super) struct Pace {
    until: Instant,
    pause: Duration,
}

impl Pace {
    pub(super) fn new(limit: Duration) -> Self {
        // More than a runtime's timers can hold is as good as a year.
        let limit = limit.min(Duration::from_secs(366 * 24 * 3600));
        Self { until: Instant::now() + limit, pause: SHORTEST }
    }

    /// Pauses, or says that the time is over.
    pub(super) async fn wait(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let [random, ..] = Uuid::new_v4().into_bytes();
        // Half of it at least, so that rivals do not come in step.
        let pause = self.pause / 2 + self.pause / 2 * u32::from(random) / 255;
        self.pause = (self.pause * 2).min(LONGEST);
        sleep(pause.min(left)).await;
        true
    }
}
