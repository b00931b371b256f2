//! How long to wait after a failure.

use std::time::Duration;

/// Exponential, capped, with full jitter: any length between nothing and the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The bound after the first failure.
    pub base: Duration,
    /// The largest bound.
    pub cap: Duration,
}

impl Backoff {
    /// The bound after so many failures.
    #[must_use]
    pub fn bound(&self, failures: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.checked_mul(doubled).map_or(self.cap, |bound| bound.min(self.cap))
    }

    /// The wait after so many failures. `random` is spread evenly over its range.
    #[must_use]
    pub fn wait(&self, failures: u32, random: u32) -> Duration {
        self.bound(failures).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(30) };

    proptest! {
        // M34
        #[test]
        fn a_wait_is_within_a_bound_that_grows_to_the_cap(failures in 1_u32..200, random in any::<u32>()) {
            let wait = BACKOFF.wait(failures, random);
            prop_assert!(wait <= BACKOFF.bound(failures));
            prop_assert!(BACKOFF.bound(failures) <= BACKOFF.bound(failures + 1));
            prop_assert!(BACKOFF.bound(failures + 1) <= BACKOFF.cap);
        }
    }

    #[test]
    fn waits_double_and_use_their_whole_range() {
        assert_eq!(BACKOFF.bound(1), Duration::from_millis(100));
        assert_eq!(BACKOFF.bound(4), Duration::from_millis(800));
        assert_eq!(BACKOFF.bound(64), BACKOFF.cap);
        assert_eq!(BACKOFF.wait(1, u32::MAX), Duration::from_millis(100));
        assert_eq!(BACKOFF.wait(1, 0), Duration::ZERO);
    }
}
