//! How large the next batch is: pure.

use std::time::Duration;

/// The size of batches, which follows how long they take beside the time that even an empty one takes: on the way to a far
/// server every batch is slow, and small ones would purge nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    next: u32,
    most: u32,
    goal: Duration,
    /// What a batch takes without rows, as far as is known.
    empty: Duration,
}

impl Pace {
    /// From a size that no database takes long for.
    pub(super) fn new(most: u32, goal: Duration) -> Self {
        Self { next: FIRST.min(most), most, goal, empty: Duration::ZERO }
    }

    /// How many rows the next batch may have.
    pub(super) const fn size(&self) -> u32 {
        self.next
    }

    /// After a batch of so many rows. Only a full one says how many would have been right; it grows to twice its size at most,
    /// and shrinks at once.
    pub(super) fn done(&mut self, rows: u64, took: Duration) {
        if rows == 0 {
            // Slower ones have waited for something.
            self.empty = took.min(self.goal * 4);
            return;
        }
        self.empty = self.empty.min(took);
        let nanos = (took - self.empty).as_nanos().max(1);
        let fits =
            |rows: u64| u32::try_from(self.goal.as_nanos().saturating_mul(rows.into()) / nanos).unwrap_or(u32::MAX);
        if nanos > self.goal.as_nanos() {
            // Not below what is no trouble, however long it takes: after a failure it grows to there again.
            self.next = fits(rows.min(self.next.into())).clamp(FIRST.min(self.next), self.next);
        }
        if rows >= self.next.into() {
            let small = self.next < FIRST && nanos <= self.goal.as_nanos() * 10;
            let grown = if small { FIRST } else { fits(rows).max(self.next) };
            self.next = self.next.saturating_mul(2).min(grown).clamp(1, self.most);
        }
    }

    /// After one that failed or took too long.
    pub(super) fn failed(&mut self) {
        self.next = (self.next / 4).max(1);
    }
}

const FIRST: u32 = 100;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOAL: Duration = Duration::from_millis(50);

    // S31: a thousand rows or fifty milliseconds, whichever is less.
    #[test]
    fn quick_batches_grow_to_the_most_and_slow_ones_shrink_to_the_goal() {
        let mut pace = Pace::new(1_000, GOAL);
        for _ in 0..5 {
            pace.done(pace.size().into(), Duration::from_millis(2));
        }
        assert_eq!(pace.size(), 1_000);
        pace.done(1_000, Duration::from_millis(500));
        assert_eq!(pace.size(), 100);
        pace.done(100, Duration::from_millis(50));
        assert_eq!(pace.size(), 100, "as long as it may take");
    }

    // A batch that is not full says nothing about how large one may be.
    #[test]
    fn a_batch_that_is_not_full_makes_none_grow() {
        let mut pace = Pace::new(1_000, GOAL);
        pace.done(7, Duration::from_millis(1));
        assert_eq!(pace.size(), 100);
    }

    // S31: where even an empty batch takes longer than the goal, batches are as large as elsewhere.
    #[test]
    fn a_far_server_is_not_purged_row_by_row() {
        let mut pace = Pace::new(1_000, GOAL);
        let far = Duration::from_millis(180);
        pace.done(0, far);
        assert_eq!(pace.size(), 100, "nothing says that it is too large");
        for _ in 0..5 {
            pace.done(pace.size().into(), far + Duration::from_millis(5));
        }
        assert_eq!(pace.size(), 1_000);
        // Where nobody knows what an empty one takes, it does not shrink to nothing.
        let mut pace = Pace::new(1_000, GOAL);
        for _ in 0..20 {
            pace.done(pace.size().into(), far);
        }
        assert_eq!(pace.size(), 100);
        pace.failed();
        pace.done(25, far);
        pace.done(50, far);
        assert_eq!(pace.size(), 100, "nor stays small after a failure");
    }

    // S31: shrinks after a time-out, and is never nothing.
    #[test]
    fn a_failure_shrinks_it() {
        let mut pace = Pace::new(1_000, GOAL);
        pace.failed();
        assert_eq!(pace.size(), 25);
        for _ in 0..9 {
            pace.failed();
        }
        assert_eq!(pace.size(), 1);
        pace.done(1, Duration::from_millis(1));
        assert_eq!(pace.size(), 2);
    }

    // S31
    proptest! {
        #[test]
        fn whatever_happens_it_stays_between_one_and_the_most(
            most in 1_u32..=1_000,
            told in prop::collection::vec((0_u64..2_000, 0_u64..10_000_000, any::<bool>()), 0..50),
        ) {
            let mut pace = Pace::new(most, GOAL);
            for (rows, micros, failed) in told {
                if failed { pace.failed() } else { pace.done(rows, Duration::from_micros(micros)) }
                prop_assert!((1..=most).contains(&pace.size()));
            }
        }
    }
}
