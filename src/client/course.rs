//! One operation on its way through its attempts: how long the next pause is, if there is one (C2).

use std::time::Duration;

use tokio::time::Instant;
use tower::retry::budget::Budget;
use tower::util::rng::{HasherRng, Rng};

use super::judge::Sign;
use super::policy::RetryPolicy;

/// The state of one operation.
#[derive(Clone, Debug)]
pub(super) struct Course {
    began: Instant,
    /// Attempts that have failed; those that were told to wait are not among them.
    failed: u32,
    /// Pauses that have been made, of either kind.
    pauses: u32,
    /// Its own, so that operations of one process do not pause in step.
    rng: HasherRng,
}

impl Course {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), failed: 0, pauses: 0, rng: HasherRng::new() }
    }

    /// Whether nothing has come back yet.
    pub(super) fn is_new(&self) -> bool {
        self.failed == 0 && self.pauses == 0
    }

    /// The pause before the next attempt; `None` where what has come back is the result.
    pub(super) fn next(&mut self, policy: &RetryPolicy, sign: Sign) -> Option<Duration> {
        let (floor, waits) = match sign {
            Sign::Final => {
                policy.budget.deposit();
                return None;
            }
            Sign::Again => (Duration::ZERO, false),
            Sign::Wait(floor) => (floor.unwrap_or_default(), true),
        };
        if !waits {
            self.failed += 1;
            if self.failed >= policy.attempts {
                return None;
            }
        }
        // Never earlier than the server says, so later than this client can wait is never.
        let pause = self.backoff(policy).max(floor);
        let left = policy.deadline.checked_sub(self.began.elapsed())?;
        if floor > policy.longest_wait || pause > left {
            return None;
        }
        if !waits && !policy.budget.withdraw() {
            return None;
        }
        self.pauses += 1;
        // Up to half as long again. The jitter of a long wait is no longer than that of the longest backoff.
        let jitter = (pause.min(policy.longest_pause) / 2).mul_f64(self.rng.next_f64());
        Some(pause.saturating_add(jitter).min(left))
    }

    fn backoff(&self, policy: &RetryPolicy) -> Duration {
        policy.first_pause.saturating_mul(1 << self.pauses.min(20)).min(policy.longest_pause)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::advance;
    use tower::retry::budget::TpsBudget;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wait(seconds: u64) -> Sign {
        Sign::Wait(Some(Duration::from_secs(seconds)))
    }

    fn is_between(pause: Option<Duration>, least: u64, most: u64) -> bool {
        let range = Duration::from_millis(least)..=Duration::from_millis(most);
        pause.is_some_and(|pause| range.contains(&pause))
    }

    // C2
    #[tokio::test(start_paused = true)]
    async fn pauses_double_and_attempts_end() {
        let policy = RetryPolicy::new().attempts(9);
        let mut course = Course::begin();
        for base in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = course.next(&policy, Sign::Again);
            assert!(is_between(pause, base, base * 3 / 2), "{pause:?}");
        }
        assert_eq!(course.next(&policy, Sign::Again), None);
        assert_eq!(Course::begin().next(&policy.attempts(0), Sign::Again), None);
    }

    // C2
    #[tokio::test(start_paused = true)]
    async fn retry_after_is_a_floor_and_not_the_pause() {
        let policy = RetryPolicy::new();
        for _ in 0..100 {
            assert!(is_between(Course::begin().next(&policy, wait(3)), 3000, 4500));
            assert!(is_between(Course::begin().next(&policy, wait(30)), 30_000, 32_500));
            assert!(is_between(Course::begin().next(&policy, wait(0)), 100, 150));
            assert!(is_between(Course::begin().next(&policy, Sign::Wait(None)), 100, 150));
        }
        let different: std::collections::HashSet<_> = (0..20).map(|_| Course::begin().next(&policy, wait(3))).collect();
        assert!(different.len() > 10, "no jitter");
    }

    // C2
    #[tokio::test(start_paused = true)]
    async fn nothing_is_tried_earlier_than_the_server_says() {
        let policy = RetryPolicy::new();
        assert!(Course::begin().next(&policy.clone().deadline(100 * SECOND), wait(60)).is_some());
        assert_eq!(Course::begin().next(&policy.clone().deadline(100 * SECOND), wait(61)), None);
        let mut course = Course::begin();
        advance(58 * SECOND).await;
        assert_eq!(course.next(&policy, wait(3)), None);
        // The jitter is what gives way to the deadline.
        assert_eq!(course.next(&policy, wait(2)), Some(2 * SECOND));
        advance(3 * SECOND).await;
        assert_eq!(course.next(&policy, wait(0)), None);
    }

    // C2
    #[tokio::test(start_paused = true)]
    async fn waiting_answers_use_up_neither_attempts_nor_budget() {
        let policy = RetryPolicy::new().attempts(2).budget(Arc::new(TpsBudget::new(SECOND, 1, 0.0)));
        let mut course = Course::begin();
        for _ in 0..20 {
            assert!(course.next(&policy, wait(1)).is_some());
        }
        assert!(course.next(&policy, Sign::Again).is_some());
        assert_eq!(course.next(&policy, Sign::Again), None);
    }

    // C2
    #[tokio::test(start_paused = true)]
    async fn a_budget_bounds_all_operations_together_and_has_a_reserve() {
        let policy = RetryPolicy::new();
        let retries = (0..1000).filter(|_| Course::begin().next(&policy.clone(), Sign::Again).is_some()).count();
        assert_eq!(retries, 100, "10 a second over 10 s");
        for _ in 0..50 {
            assert_eq!(Course::begin().next(&policy, Sign::Final), None);
        }
        let retries = (0..1000).filter(|_| Course::begin().next(&policy, Sign::Again).is_some()).count();
        assert_eq!(retries, 10, "a fifth of the operations");
    }
}
