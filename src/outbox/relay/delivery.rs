//! How events of one destination are delivered.

use std::time::Duration;

use super::plan::schedule::Destined;
use super::plan::{Backoff, OnExhausted, OnUnknown, Rules};

/// The settings of one destination.
///
/// ```
/// use idempotency::outbox::relay::{Delivery, OnExhausted};
///
/// let delivery = Delivery::new().attempts(5).on_exhausted(OnExhausted::Skip);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Delivery(Destined);

impl Default for Delivery {
    fn default() -> Self {
        Self::new()
    }
}

impl Delivery {
    /// 10 attempts; what is refused for good blocks its key; what is unknown is sent again.
    pub const fn new() -> Self {
        Self(Destined {
            rules: Rules { attempts: 10, on_unknown: OnUnknown::Retry, on_exhausted: OnExhausted::Block },
            retry: Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(300) },
            breaker: Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(30) },
            per_key: 1,
        })
    }

    /// So many attempts that count: refusals that are not final, and unknown outcomes while the destination acked other
    /// events. An outage of the destination counts for nothing (M34). One that was begun by a process that vanished counts
    /// too, so that an event which kills whoever publishes it stands still in the end.
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.0.rules.attempts = attempts;
        self
    }

    /// What follows an answer that does not come.
    pub const fn on_unknown(mut self, then: OnUnknown) -> Self {
        self.0.rules.on_unknown = then;
        self
    }

    /// What becomes of an event with a key when its attempts are used up or it is refused for good. One without a key goes to
    /// the dead letters in any case.
    pub const fn on_exhausted(mut self, then: OnExhausted) -> Self {
        self.0.rules.on_exhausted = then;
        self
    }

    /// How long an event that has failed waits: any time up to a bound, which begins with the first length (500 ms) and doubles
    /// with each failure up to the second (5 min).
    pub const fn retry_after(mut self, first: Duration, longest: Duration) -> Self {
        self.0.retry = Backoff { base: first, cap: longest };
        self
    }

    /// The same for a destination that takes nothing at the moment: 200 ms, up to 30 s.
    pub const fn outage_retry_after(mut self, first: Duration, longest: Duration) -> Self {
        self.0.breaker = Backoff { base: first, cap: longest };
        self
    }

    /// For a test that shows what this would break: so many events of a key are out at once (M32).
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub const fn window_per_key(mut self, events: usize) -> Self {
        self.0.per_key = events;
        self
    }

    pub(super) const fn destined(self, keeps_order: bool, window: usize) -> Destined {
        let mut destined = self.0;
        if keeps_order {
            destined.per_key = window;
        }
        destined
    }
}
