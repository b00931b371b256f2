//! Up to where a bucket was read (M36, M37).

use std::collections::BTreeSet;

/// The positions of one bucket. They are no truth (M30): every row is pending as long as it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Positions {
    read: i64,
    settled: i64,
    /// Rows between the two that were seen and are not in memory: those of keys that are held up.
    passed: BTreeSet<i64>,
}

impl Positions {
    /// Rows beyond this number were not read.
    #[must_use]
    pub const fn read(&self) -> i64 {
        self.read
    }

    /// Up to this number no row can appear any more.
    #[must_use]
    pub const fn settled(&self) -> i64 {
        self.settled
    }

    /// The numbers among which late rows may appear: beyond the first, up to the second.
    #[must_use]
    pub fn unsettled(&self) -> Option<(i64, i64)> {
        (self.settled < self.read).then_some((self.settled, self.read))
    }

    /// A poll has read up to this number.
    pub fn advance(&mut self, read: i64) {
        self.read = self.read.max(read);
    }

    /// A row was seen and is not kept in memory.
    pub fn pass(&mut self, seq: i64) {
        if seq > self.settled {
            self.passed.insert(seq);
        }
    }

    /// Whether a row was seen and not kept. Not told of rows that are settled.
    #[must_use]
    pub fn has_passed(&self, seq: i64) -> bool {
        self.passed.contains(&seq)
    }

    /// Nothing can appear up to this number any more.
    pub fn settle(&mut self, seq: i64) {
        let seq = seq.min(self.read);
        if seq > self.settled {
            self.settled = seq;
            self.passed = self.passed.split_off(&(seq + 1));
        }
    }

    /// Goes back, so that rows beyond this number are read again.
    pub fn rewind(&mut self, seq: i64) {
        self.read = self.read.min(seq);
        self.settled = self.settled.min(seq);
        let _ = self.passed.split_off(&(seq + 1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // M36
        #[test]
        fn settled_never_outruns_read(steps in prop::collection::vec((0_u8..4, 0_i64..100), 0..100)) {
            let mut positions = Positions::default();
            for (step, seq) in steps {
                match step {
                    0 => positions.advance(seq),
                    1 => positions.pass(seq),
                    2 => positions.settle(seq),
                    _ => positions.rewind(seq),
                }
                prop_assert!(positions.settled() <= positions.read());
                prop_assert!(positions.passed.iter().all(|seq| *seq > positions.settled()));
            }
        }
    }

    // M37
    #[test]
    fn a_rewound_bucket_is_read_again() {
        let mut positions = Positions::default();
        positions.advance(10);
        positions.pass(7);
        positions.settle(5);
        assert_eq!(positions.unsettled(), Some((5, 10)));
        assert!(positions.has_passed(7));
        positions.rewind(2);
        assert_eq!((positions.read(), positions.settled()), (2, 2));
        assert!(!positions.has_passed(7));
    }
}
