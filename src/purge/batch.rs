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

    /// How many more rows a batch of at most so many may delete.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) fn room_in(self, limit: u32) -> u32 {
        limit.saturating_sub(u32::try_from(self.purged()).unwrap_or(u32::MAX))
    }

    /// Of so many rows that never had a time to expire.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) const fn swept(rows: u64) -> Self {
        Self::Done { purged: rows, overdue: Duration::ZERO }
    }

    /// Of rows that had been expired for so many microseconds. A row that was freed at once has the beginning of all time as
    /// its end: it waits since it was freed, and nobody knows when that was.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) fn of(overdue: Vec<i64>) -> Self {
        let (mut purged, mut oldest) = (0, 0);
        for overdue in overdue {
            purged += 1;
            if overdue < FREED {
                oldest = overdue.max(oldest);
            }
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

/// Longer than any row has been expired: 50 years, in microseconds.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
const FREED: i64 = 50 * 365 * 24 * 3600 * 1_000_000;

#[cfg(all(test, any(feature = "postgres", feature = "sqlite", feature = "mysql")))]
mod tests {
    use super::*;

    // S31: the lag is that of rows that have expired, not of those that were freed at once.
    #[test]
    fn a_freed_row_has_no_lag() {
        let since_1970 = 56 * 365 * 24 * 3600 * 1_000_000;
        let freed = Batch::of(vec![since_1970, 2_000_000, 1_000_000]);
        assert_eq!(freed, Batch::Done { purged: 3, overdue: Duration::from_secs(2) });
        assert_eq!(Batch::of(vec![since_1970]), Batch::swept(1));
    }

    // S9: a batch of several tables has no more rows than it may.
    #[test]
    fn what_is_left_of_a_limit_is_never_negative() {
        assert_eq!(Batch::swept(3).room_in(10), 7);
        assert_eq!(Batch::swept(30).room_in(10), 0);
        assert_eq!(Batch::Busy.room_in(10), 10);
    }
}
