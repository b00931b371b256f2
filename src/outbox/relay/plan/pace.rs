//! How often something is done that costs.

use std::time::Duration;

/// Of a thing that may take its time: it rests for a multiple of what it took (M37).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pace {
    least: Duration,
    times: u32,
    due: Duration,
    began: Option<Duration>,
}

impl Pace {
    /// At most every `least`, and a rest of `times` its own duration. The first is due at once.
    #[must_use]
    pub const fn new(least: Duration, times: u32) -> Self {
        Self { least, times, due: Duration::ZERO, began: None }
    }

    /// Puts the next one off.
    pub fn not_before(&mut self, due: Duration) {
        self.due = self.due.max(due);
    }

    /// Has it done at once.
    pub fn at_once(&mut self) {
        self.due = Duration::ZERO;
    }

    /// When it is due; `None` while it is under way.
    #[must_use]
    pub const fn due(&self) -> Option<Duration> {
        match self.began {
            None => Some(self.due),
            Some(_) => None,
        }
    }

    /// Begins, if it is due.
    pub fn start(&mut self, now: Duration) -> bool {
        let begins = self.began.is_none() && now >= self.due;
        if begins {
            self.began = Some(now);
        }
        begins
    }

    /// Whether it is under way.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.began.is_some()
    }

    /// It is done, or has failed.
    pub fn end(&mut self, now: Duration) {
        if let Some(began) = self.began.take() {
            let took = now.saturating_sub(began);
            self.due = now.saturating_add(took.saturating_mul(self.times).max(self.least));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // M37
    #[test]
    fn a_full_pass_rests_for_a_hundred_times_its_duration() {
        let at = Duration::from_millis;
        let mut pace = Pace::new(at(10_000), 100);
        assert!(pace.start(at(0)));
        assert!(!pace.start(at(1)));
        pace.end(at(500));
        assert_eq!(pace.due(), Some(at(50_500)));
        assert!(!pace.start(at(50_499)));
        assert!(pace.start(at(50_500)));
        pace.end(at(50_501));
        assert_eq!(pace.due(), Some(at(60_501)));
    }
}
