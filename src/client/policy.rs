//! When a client tries again: the settings (C2).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower::retry::budget::TpsBudget;

use crate::events::{self, Event};

/// When a client tries again, and how long it waits. Clones share one budget.
///
/// Tried again: errors of the connection, 408, 425, 429, 502, 503, 504, and 409 if and only if it carries `Retry-After`
/// (a server of this crate says so whether waiting helps). `x-should-retry` and `stripe-should-retry` (`true`, `false`)
/// override it both ways. Never 400, 410 and 422, nor anything below 400.
///
/// The pause is the longer of backoff and `Retry-After`, and some jitter on top. An answer that carries `Retry-After` is
/// a waiting answer: the server names the time, and it uses up neither attempts nor budget, only the deadline.
#[derive(Clone)]
pub struct RetryPolicy {
    pub(super) attempts: u32,
    pub(super) deadline: Duration,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
    pub(super) longest_wait: Duration,
    pub(super) retries_500: bool,
    pub(super) retries_bare_409: bool,
    pub(super) budget: Arc<TpsBudget>,
    has_said: Arc<AtomicBool>,
}

impl RetryPolicy {
    /// 5 attempts within 60 s; pauses from 0.1 s, doubled up to 5 s; `Retry-After` up to 60 s; retries for a fifth of the
    /// operations and 10 a second besides, over 10 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            attempts: 5,
            deadline: Duration::from_secs(60),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
            longest_wait: Duration::from_secs(60),
            retries_500: false,
            retries_bare_409: false,
            budget: Arc::default(),
            has_said: Arc::default(),
        }
    }

    /// For services that answer as Stripe's does: a 409 without `Retry-After` says that the same key is in use right now,
    /// and is tried again.
    #[must_use]
    pub fn stripe() -> Self {
        Self { retries_bare_409: true, ..Self::new() }
    }

    /// How many attempts an operation gets, the first one included; waiting answers do not count. 0 is 1.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// How long after the first attempt the last one may begin. It bounds waiting answers too.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The pause after the first attempt, doubled after each one up to the longest.
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.first_pause = first;
        self.longest_pause = longest;
        self
    }

    /// The longest `Retry-After` to wait for. An answer that names a longer one is returned: it is never tried again
    /// earlier than the server says.
    #[must_use]
    pub fn longest_wait(mut self, longest: Duration) -> Self {
        self.longest_wait = longest;
        self
    }

    /// Tries again after 500 too. For services whose 500 leaves the key free, as those of this crate do; others store it,
    /// and then a retry only gets it again.
    #[must_use]
    pub fn retry_500(mut self) -> Self {
        self.retries_500 = true;
        self
    }

    /// How many retries all operations together may make. Where a server fails for everybody, retries must not multiply
    /// what it gets. The budget's reserve is what a quiet client may use.
    #[must_use]
    pub fn budget(mut self, budget: Arc<TpsBudget>) -> Self {
        self.budget = budget;
        self
    }

    /// Said once: later ones say nothing new.
    pub(super) fn say_unrepeatable(&self) {
        if !self.has_said.swap(true, Ordering::Relaxed) {
            events::emit(Event::UnrepeatableBody);
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("attempts", &self.attempts)
            .field("deadline", &self.deadline)
            .field("longest_wait", &self.longest_wait)
            .field("retries_500", &self.retries_500)
            .field("retries_bare_409", &self.retries_bare_409)
            .finish_non_exhaustive()
    }
}
