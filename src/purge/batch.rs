//! What one batch comes to.

use std::time::Duration;

/// What one batch of a purge has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Nothing: another runner is at work on these tables just now.
    Busy,
    /// Its own part.
    Done {
        /// How many rows were deleted.
        purged: u64,
        /// How long the oldest of them had been expired; zero where nothing was deleted, or where it is not known.
        overdue: Duration,
    },
}

impl Batch {
    /// Nothing had expired.
    pub const NOTHING: Self = Self::Done { purged: 0, overdue: Duration::ZERO };

    /// How many rows were deleted.
    #[must_use]
    pub const fn purged(self) -> u64 {
        match self {
            Self::Busy => 0,
            Self::Done { purged, .. } => purged,
        }
    }

    /// Of rows that had been expired for so many microseconds.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) fn of(overdue: Vec<i64>) -> Self {
        let (mut purged, mut oldest) = (0, 0);
        for overdue in overdue {
            purged += 1;
            oldest = overdue.max(oldest);
        }
        Self::Done { purged, overdue: Duration::from_micros(u64::try_from(oldest).unwrap_or(0)) }
    }

    /// Of two tables under one lock.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Done { purged, overdue }, Self::Done { purged: more, overdue: later }) => {
                Self::Done { purged: purged + more, overdue: overdue.max(later) }
            }
            _ => Self::Busy,
        }
    }
}
