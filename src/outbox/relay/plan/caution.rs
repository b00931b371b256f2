//! How rows are worked whose relay has vanished: one of them may have killed it (M34).
//!
//! The attempt is recorded before it is made. Rows go in groups: first one, then two, then four, as long as the process
//! survives. A row whose last recorded attempt never ended is a suspect, and goes alone. So whatever kills processes is
//! found in two crashes, and stands still after as many as are allowed; and a long backlog does not crawl.

/// The groups of rows that go carefully, over all buckets of a relay.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caution {
    group: usize,
    most: usize,
    begun: usize,
    out: usize,
    alone: bool,
}

impl Caution {
    /// Groups grow up to this size.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { group: 1, most, begun: 0, out: 0, alone: false }
    }

    /// Whether a row may go now. If so it counts as being out.
    pub const fn admits(&mut self, suspect: bool) -> bool {
        if self.alone || (suspect && self.out > 0) || self.begun >= self.group {
            return false;
        }
        self.alone = suspect;
        self.begun += 1;
        self.out += 1;
        true
    }

    /// A row that was out has its answer, and the process lives. Returns whether others may go now.
    pub fn resolved(&mut self) -> bool {
        self.out = self.out.saturating_sub(1);
        if self.out > 0 {
            return false;
        }
        if !self.alone && self.begun >= self.group {
            self.group = self.group.saturating_mul(2).min(self.most.max(1));
        }
        self.alone = false;
        self.begun = 0;
        true
    }

    /// Another relay has vanished: groups begin with one row again.
    pub const fn begin_again(&mut self) {
        self.group = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // M34
    #[test]
    fn groups_double_as_long_as_the_process_lives() {
        let mut caution = Caution::new(8);
        for group in [1, 2, 4, 8, 8] {
            for _ in 0..group {
                assert!(caution.admits(false));
            }
            assert!(!caution.admits(false));
            for left in (0..group).rev() {
                assert_eq!(caution.resolved(), left == 0);
            }
        }
    }

    // M34
    #[test]
    fn a_suspect_goes_alone() {
        let mut caution = Caution::new(8);
        assert!(caution.admits(true));
        assert!(!caution.admits(true));
        assert!(!caution.admits(false));
        assert!(caution.resolved());
        assert!(caution.admits(false));
        assert!(!caution.admits(true));
    }

    // M34: rows, of which one kills whoever publishes it. It is found after as many crashes as are allowed, and nobody
    // else is blamed as often.
    #[test]
    fn what_kills_processes_is_found_in_few_crashes() {
        const LIMIT: u32 = 3;
        for killer in 0..300 {
            let mut crashes = vec![0_u32; 300];
            let mut pending: Vec<usize> = (0..300).collect();
            let mut starts = 0;
            'process: loop {
                starts += 1;
                assert!(starts < 10);
                let mut caution = Caution::new(256);
                pending.retain(|row| crashes[*row] < LIMIT);
                // Suspects first, as the scheduler does.
                pending.sort_by_key(|row| (crashes[*row] == 0, *row));
                while !pending.is_empty() {
                    let mut out = Vec::new();
                    while let Some(row) = pending.first().copied() {
                        if !caution.admits(crashes[row] > 0) {
                            break;
                        }
                        crashes[row] += 1;
                        out.push(pending.remove(0));
                    }
                    assert!(!out.is_empty());
                    if out.contains(&killer) {
                        pending.extend(out);
                        continue 'process;
                    }
                    for row in out {
                        crashes[row] = 0;
                        caution.resolved();
                    }
                }
                break;
            }
            assert_eq!(starts, LIMIT + 1);
            assert!((0..300).all(|row| (crashes[row] == LIMIT) == (row == killer)));
        }
    }
}
