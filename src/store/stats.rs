//! How the records of a store stand, in numbers: how far counting went, and what was made of it. Pure.

use std::fmt;
use std::time::Duration;

use crate::policy::State;

/// A number of rows or records, and how much it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// Counted to the end.
    Exactly(u64),
    /// Counted so far and no further: there are more, or may be.
    AtLeast(u64),
    /// What the database's planner believes. It may be far off after many changes, until the next `ANALYZE`.
    About(u64),
}

impl Count {
    /// The number alone.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) | Self::About(number) => number,
        }
    }

    /// From a count that went one row further than it was to report.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) fn up_to(most: u64, seen: u64) -> Self {
        if seen <= most { Self::Exactly(seen) } else { Self::AtLeast(most) }
    }

    /// The same, with what the planner believes of what was not counted. A belief that what was seen disproves is left out.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(crate) fn or_about(most: u64, seen: u64, believed: Option<u64>) -> Self {
        match (Self::up_to(most, seen), believed) {
            (Self::AtLeast(_), Some(believed)) if believed > most => Self::About(believed),
            (counted, _) => counted,
        }
    }
}

/// `7`, `10000 or more`, `about 9000000`.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "{number}"),
            Self::AtLeast(number) => write!(f, "{number} or more"),
            Self::About(number) => write!(f, "about {number}"),
        }
    }
}

/// How the records of a store stand: see [`Operate::stats`](super::Operate::stats). What is `None` cannot be told without
/// reading more than was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyStats {
    /// All of them, expired ones that are not purged yet included.
    pub records: Count,
    /// Those that have expired and wait for a purge. Where the store forgets by itself there are none.
    pub expired: Count,
    /// For how long the longest expired of them has been.
    pub overdue: Option<Duration>,
    /// Live records whose operation is running.
    pub running: Option<Count>,
    /// Live records of attempts that stopped, which the next request takes over.
    pub lapsed: Option<Count>,
    /// Live records of attempts that stopped after they had called somebody else: they wait for an operator.
    pub unknown: Option<Count>,
    /// Live records that were closed by the end of their transaction: they wait for an operator.
    pub orphaned: Option<Count>,
    /// Live records with an answer.
    pub completed: Option<Count>,
}

impl KeyStats {
    /// As far as counts go unless more is asked for, so that counting costs the same however large the table is.
    pub const MOST: u64 = 10_000;

    /// Of a store without a record.
    #[must_use]
    pub fn empty() -> Self {
        let none = Some(Count::Exactly(0));
        Self {
            records: Count::Exactly(0),
            expired: Count::Exactly(0),
            overdue: None,
            running: none,
            lapsed: none,
            unknown: none,
            orphaned: none,
            completed: none,
        }
    }

    /// Where the number of this state stands.
    pub(crate) fn of(&mut self, state: State) -> &mut Option<Count> {
        match state {
            State::Running => &mut self.running,
            State::Lapsed => &mut self.lapsed,
            State::Unknown => &mut self.unknown,
            State::Orphaned => &mut self.orphaned,
            State::Completed => &mut self.completed,
        }
    }
}

/// Live records, each counted by its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByState([u64; 5]);

const STATES: [State; 5] = [State::Running, State::Lapsed, State::Unknown, State::Orphaned, State::Completed];

impl ByState {
    pub(crate) fn add(&mut self, state: State) {
        for (number, known) in self.0.iter_mut().zip(STATES) {
            *number += u64::from(known == state);
        }
    }

    /// Puts the numbers into what is reported, each as `count` says.
    pub(crate) fn report(&self, stats: &mut KeyStats, count: impl Fn(u64) -> Count) {
        for (number, state) in self.0.into_iter().zip(STATES) {
            *stats.of(state) = Some(count(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    #[test]
    fn a_count_says_how_far_it_went() {
        assert_eq!(Count::up_to(10, 0), Count::Exactly(0));
        assert_eq!(Count::up_to(10, 10), Count::Exactly(10));
        assert_eq!(Count::up_to(10, 11), Count::AtLeast(10));
        // A belief counts only where the table was not read to its end, and where it can be true.
        assert_eq!(Count::or_about(10, 7, Some(1_000)), Count::Exactly(7));
        assert_eq!(Count::or_about(10, 11, Some(1_000)), Count::About(1_000));
        assert_eq!(Count::or_about(10, 11, Some(10)), Count::AtLeast(10));
        assert_eq!(Count::or_about(10, 11, None), Count::AtLeast(10));
        assert_eq!(Count::up_to(u64::MAX, 11), Count::Exactly(11));
    }

    #[test]
    fn a_number_says_what_it_is_worth() {
        let texts = [Count::Exactly(7), Count::AtLeast(10), Count::About(9)].map(|count| count.to_string());
        assert_eq!(texts, ["7", "10 or more", "about 9"]);
    }

    #[test]
    fn each_state_has_a_number_of_its_own() {
        let (mut by_state, mut stats) = (ByState::default(), KeyStats::empty());
        for (times, state) in (1..).zip(STATES) {
            (0..times).for_each(|_| by_state.add(state));
        }
        by_state.report(&mut stats, Count::Exactly);
        let numbers = STATES.map(|state| stats.of(state).map(Count::number));
        assert_eq!(numbers, [1, 2, 3, 4, 5].map(Some));
    }
}
