//! Whether a destination is asked at all (M34).

use std::time::Duration;

use super::Backoff;

/// The breaker of one destination. Open, nothing is sent; after the wait one event tries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Breaker {
    backoff: Backoff,
    state: State,
    failures: u32,
    /// The last change: what was sent before says nothing new.
    since: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Closed,
    Open { until: Duration },
    Probing,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { backoff, state: State::Closed, failures: 0, since: Duration::ZERO }
    }

    /// Whether it is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether an event may be sent now.
    #[must_use]
    pub fn allows(&self, now: Duration) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } => now >= until,
            State::Probing => false,
        }
    }

    /// When an open one lets an event try.
    #[must_use]
    pub const fn opens_at(&self) -> Option<Duration> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::Probing => None,
        }
    }

    /// An event is sent: of an open breaker it is the only one.
    pub fn sent(&mut self) {
        if matches!(self.state, State::Open { .. }) {
            self.state = State::Probing;
        }
    }

    /// What was to try was not sent after all.
    pub fn withdrawn(&mut self, now: Duration) {
        if self.state == State::Probing {
            self.state = State::Open { until: now };
        }
    }

    /// The destination has answered, whatever it said of the event. Returns whether that closes the breaker.
    pub fn answered(&mut self, now: Duration) -> bool {
        let closes = self.state != State::Closed;
        self.failures = 0;
        if closes {
            self.state = State::Closed;
            self.since = now;
        }
        closes
    }

    /// The destination could not take an event that was sent at `sent`. It may have said when to ask again.
    ///
    /// Returns whether this opens the breaker: of a window full of failures only the first one does.
    pub fn failed(&mut self, sent: Duration, now: Duration, retry_after: Option<Duration>, random: u32) -> bool {
        let news = match self.state {
            State::Closed | State::Probing => sent >= self.since,
            State::Open { .. } => false,
        };
        if news {
            self.failures = self.failures.saturating_add(1);
            self.since = now;
        }
        let wait = self.backoff.wait(self.failures.max(1), random);
        let wait = retry_after.map_or(wait, |asked| asked.min(LONGEST_ASKED).max(wait));
        match &mut self.state {
            // A later answer may ask for more time, never for less.
            State::Open { until } if retry_after.is_some() => *until = (*until).max(now.saturating_add(wait)),
            State::Open { .. } => {}
            state if news => *state = State::Open { until: now.saturating_add(wait) },
            _ => {}
        }
        news
    }
}

/// A destination may ask for a pause, not for its own end.
const LONGEST_ASKED: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    const BACKOFF: Backoff = Backoff { base: ms(100), cap: ms(1_000) };

    // M34
    #[test]
    fn an_open_breaker_lets_one_event_try() {
        let mut breaker = Breaker::new(BACKOFF);
        assert!(breaker.failed(ms(0), ms(5), None, u32::MAX));
        assert!(!breaker.allows(ms(104)));
        assert!(breaker.allows(ms(105)));
        breaker.sent();
        assert!(!breaker.allows(ms(106)));
        assert!(breaker.failed(ms(105), ms(110), None, u32::MAX));
        assert_eq!(breaker.opens_at(), Some(ms(310)));
        breaker.sent();
        assert!(breaker.answered(ms(311)));
        assert!(breaker.allows(ms(311)));
        assert!(!breaker.answered(ms(312)));
    }

    // M34: 256 events under way fail at once, and that is one failure.
    #[test]
    fn a_window_of_failures_counts_once() {
        let mut breaker = Breaker::new(BACKOFF);
        assert!(breaker.failed(ms(0), ms(10), None, u32::MAX));
        for _ in 0..255 {
            assert!(!breaker.failed(ms(0), ms(11), None, u32::MAX));
        }
        assert_eq!(breaker.opens_at(), Some(ms(110)));
        // Answers to what was sent before come while the probe is out.
        breaker.sent();
        assert!(!breaker.failed(ms(1), ms(112), None, u32::MAX));
        assert!(!breaker.allows(ms(10_000)));
    }

    // M34
    #[test]
    fn a_destination_may_ask_for_more_time() {
        let mut breaker = Breaker::new(BACKOFF);
        breaker.failed(ms(0), ms(0), Some(ms(5_000)), 0);
        assert_eq!(breaker.opens_at(), Some(ms(5_000)));
        breaker.failed(ms(0), ms(1), Some(ms(7_000)), 0);
        assert_eq!(breaker.opens_at(), Some(ms(7_001)));
        breaker.failed(ms(0), ms(2), Some(ms(1)), 0);
        assert_eq!(breaker.opens_at(), Some(ms(7_001)));
    }
}
