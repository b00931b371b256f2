//! What operators see of an outbox, and what they may ask for.

use std::time::Duration;

use uuid::Uuid;

use super::event::PendingEvent;

/// How an outbox stands. Each count is exact up to [`Stats::MOST`], which stands for itself and everything above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Events that wait to be published, failing and blocked ones included; without deferred ones.
    pub pending: u64,
    /// The age of the oldest of them, by the database's clock.
    pub oldest_age: Option<Duration>,
    /// Those whose last attempt has failed and that will be tried again.
    pub failing: u64,
    /// Those that wait for an operator, with the rest of their key behind them.
    pub blocked: u64,
    /// Events that wait until they are due.
    pub deferred: u64,
    /// Dead letters.
    pub dead: u64,
}

impl Stats {
    /// As far as counts go, so that counting costs the same however long the outbox is.
    pub const MOST: u64 = 10_000;
}

/// A pending event whose last attempt has failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailingEvent {
    /// The event.
    pub pending: PendingEvent,
    /// Attempts that count.
    pub attempts: u32,
    /// Whether it waits for an operator.
    pub blocked: bool,
    /// Since its first failure.
    pub failing_for: Duration,
    /// What the publisher said last.
    pub error: String,
}

/// An event that is not tried any more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The event, with the row that it had.
    pub event: PendingEvent,
    /// Attempts that counted.
    pub attempts: u32,
    /// Since it was given up.
    pub dead_for: Duration,
    /// What the publisher said last.
    pub error: String,
}

/// Which dead letters are meant: all, unless something is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    pub(crate) id: Option<Uuid>,
    pub(crate) destination: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) older_than: Option<Duration>,
}

impl DeadLetters {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// The one with this id.
    #[must_use]
    pub fn with_id(id: Uuid) -> Self {
        Self { id: Some(id), ..Self::default() }
    }

    /// For this destination.
    #[must_use]
    pub fn destination(self, destination: impl Into<String>) -> Self {
        Self { destination: Some(destination.into()), ..self }
    }

    /// Of this topic.
    #[must_use]
    pub fn topic(self, topic: impl Into<String>) -> Self {
        Self { topic: Some(topic.into()), ..self }
    }

    /// Of this type.
    #[must_use]
    pub fn kind(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// Of this key.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Dead for so long or longer.
    #[must_use]
    pub fn older_than(self, age: Duration) -> Self {
        Self { older_than: Some(age), ..self }
    }
}
