//! From when on nothing more can appear below a number (M30, M31).
//!
//! Numbers are drawn before their transactions commit. So a row may appear below rows that were read long ago; and a later
//! row of the same key may be read by a poll that does not look there any more. A position may therefore move past a number
//! only when every transaction that may have drawn a smaller one has ended. No number of a transaction is compared with
//! another (case B04): what is compared is who was at work then and who of them still is.

use std::collections::BTreeSet;
use std::time::Duration;

/// Waits for the writers that were at work at some moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Horizon {
    /// Where a number is drawn a moment before its transaction can be seen, the moment must be over.
    least: Duration,
    since: Option<Mark>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Mark {
    at: Duration,
    /// Everything up to this number was drawn before `at`.
    seq: i64,
    writers: BTreeSet<String>,
}

impl Horizon {
    /// A mark must be so old at least.
    #[must_use]
    pub const fn new(least: Duration) -> Self {
        Self { least, since: None }
    }

    /// The writers at work, asked for at `now`, after a row with the number `seq` had been seen. Returns the number up to which
    /// nothing more can appear, where that is news.
    pub fn writers(&mut self, now: Duration, seq: i64, writers: impl IntoIterator<Item = String>) -> Option<i64> {
        let writers: BTreeSet<String> = writers.into_iter().collect();
        let Some(mark) = &mut self.since else {
            // Nobody at work, and no moment to wait for: all that was drawn has ended.
            if writers.is_empty() && self.least.is_zero() {
                return Some(seq);
            }
            self.since = Some(Mark { at: now, seq, writers });
            return None;
        };
        mark.writers.retain(|writer| writers.contains(writer));
        if !mark.writers.is_empty() || now.saturating_sub(mark.at) < self.least {
            return None;
        }
        let settled = mark.seq;
        self.since = Some(Mark { at: now, seq, writers });
        Some(settled)
    }

    /// Forgets what it waits for.
    pub fn reset(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    // M31, case B04: nobody's number is kept or compared over a restart.
    #[test]
    fn a_position_waits_for_those_that_were_at_work_and_for_nobody_else() {
        let mut horizon = Horizon::new(Duration::ZERO);
        let at = Duration::from_secs;
        assert_eq!(horizon.writers(at(0), 10, names(&["a", "b"])), None);
        assert_eq!(horizon.writers(at(1), 20, names(&["b", "c"])), None);
        // b has ended; c and d began later.
        assert_eq!(horizon.writers(at(2), 30, names(&["c", "d"])), Some(10));
        assert_eq!(horizon.writers(at(3), 40, names(&["e"])), Some(30));
        assert_eq!(horizon.writers(at(4), 50, names(&[])), Some(40));
    }

    #[test]
    fn a_moment_passes_first_where_one_is_needed() {
        let mut horizon = Horizon::new(Duration::from_secs(1));
        assert_eq!(horizon.writers(Duration::ZERO, 10, []), None);
        assert_eq!(horizon.writers(Duration::from_millis(999), 20, []), None);
        assert_eq!(horizon.writers(Duration::from_secs(1), 30, []), Some(10));
    }

    proptest! {
        // M31: whatever the order of commits, no row appears at or below what was said to be settled.
        #[test]
        fn nothing_appears_below_the_horizon(steps in prop::collection::vec((0_u8..6, 0_usize..8), 1..200)) {
            let mut horizon = Horizon::new(Duration::ZERO);
            let mut open: BTreeMap<usize, i64> = BTreeMap::new();
            let (mut drawn, mut seen, mut settled) = (0_i64, 0_i64, 0_i64);
            for (now, (step, who)) in steps.into_iter().enumerate() {
                match step {
                    0..3 => {
                        // A writer draws, where it has not drawn yet.
                        open.entry(who).or_insert_with(|| { drawn += 1; drawn });
                    }
                    3..5 => if let Some(seq) = open.remove(&who) {
                        // It commits.
                        prop_assert!(seq > settled);
                        seen = seen.max(seq);
                    },
                    _ => {
                        let writers: Vec<String> = open.iter().map(|(who, seq)| format!("{who}/{seq}")).collect();
                        let now = Duration::from_secs(now as u64);
                        if let Some(news) = horizon.writers(now, seen, writers) {
                            prop_assert!(news >= settled);
                            settled = news;
                        }
                    }
                }
            }
        }
    }
}
