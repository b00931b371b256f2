//! What is sent one after the other: the rows of one key, in their order, of which one is out (M32).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Row;

/// Where a row of a lane stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It may be sent when its turn comes.
    Ready,
    /// It was handed out.
    Out,
    /// It has failed and is tried again at this time.
    Until(Duration),
    /// It waits for an operator.
    Stopped,
}

/// A row in its lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slot<E> {
    /// Its number.
    pub seq: i64,
    /// Its event's id.
    pub id: Uuid,
    /// What it carries. A row that waits is read again when it is due.
    pub row: Option<Arc<Row<E>>>,
    /// Where it stands.
    pub state: State,
    /// Failed attempts, and those that were recorded beforehand and whose process vanished.
    pub attempts: u32,
    /// Whether its next attempt is recorded beforehand.
    pub careful: bool,
}

impl<E> Slot<E> {
    const fn is_held(&self) -> bool {
        matches!(self.state, State::Until(_) | State::Stopped)
    }

    const fn is_loaded(&self) -> bool {
        self.row.is_some() && !matches!(self.state, State::Out)
    }
}

/// What became of a row that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// It is here already.
    Known,
    /// It has its place.
    Kept,
    /// It is read again when its lane gets so far.
    Passed,
}

/// One lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lane<E> {
    slots: VecDeque<Slot<E>>,
    most: usize,
    /// Rows from this number on may be in the table and not here.
    more: Option<i64>,
    /// They are being read; the smallest number that was passed meanwhile.
    refill: Option<Option<i64>>,
    /// Whether it waits for its turn at its destination.
    pub(super) queued: bool,
}

impl<E> Lane<E> {
    /// An empty one that keeps so many rows in memory.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { slots: VecDeque::new(), most, more: None, refill: None, queued: false }
    }

    /// Whether nothing of it is left, here or known to be in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.more.is_none() && self.refill.is_none()
    }

    /// Its rows in memory that are not out, and their bytes.
    #[must_use]
    pub fn loaded(&self) -> (usize, usize) {
        let loaded = self.slots.iter().filter(|slot| slot.is_loaded());
        loaded.fold((0, 0), |(rows, bytes), slot| (rows + 1, bytes + slot.row.as_ref().map_or(0, |row| row.size)))
    }

    /// How many are out.
    #[must_use]
    pub fn out(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state == State::Out).count()
    }

    /// The row of this number.
    pub fn slot(&mut self, seq: i64) -> Option<&mut Slot<E>> {
        let at = self.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()?;
        self.slots.get_mut(at)
    }

    /// Where the row of this number stands.
    #[must_use]
    pub fn state(&self, seq: i64) -> Option<State> {
        let at = self.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()?;
        self.slots.get(at).map(|slot| slot.state)
    }

    /// A row was read. `displaced` gets the numbers of rows that have lost their place to it.
    pub fn admit(&mut self, slot: Slot<E>, displaced: &mut Vec<i64>) -> Admitted {
        let seq = slot.seq;
        let Err(at) = self.slots.binary_search_by_key(&seq, |slot| slot.seq) else { return Admitted::Known };
        let held_up = self.slots.iter().take(at).any(Slot::is_held);
        let beyond = self.bound().is_some_and(|bound| bound <= seq);
        if held_up || beyond || (at >= self.most && slot.state == State::Ready) {
            self.pass(seq);
            return Admitted::Passed;
        }
        self.insert(at, slot, displaced);
        Admitted::Kept
    }

    fn insert(&mut self, at: usize, slot: Slot<E>, displaced: &mut Vec<i64>) {
        let held = slot.is_held();
        self.slots.insert(at, slot);
        if held {
            self.cut(at + 1, displaced);
        } else if self.slots.len() > self.most.max(at + 1) {
            let last = self.slots.len() - 1;
            if self.slots.get(last).is_some_and(|slot| slot.state != State::Out) {
                self.cut(last, displaced);
            }
        }
    }

    /// Takes rows out of memory from this place on, but for those that are out.
    fn cut(&mut self, at: usize, displaced: &mut Vec<i64>) {
        let rest = self.slots.split_off(at.min(self.slots.len()));
        for slot in rest {
            if slot.state == State::Out {
                self.slots.push_back(slot);
            } else {
                self.pass(slot.seq);
                displaced.push(slot.seq);
            }
        }
    }

    /// Rows from this number on are not to be sent: others before them may not be here.
    fn bound(&self) -> Option<i64> {
        match (self.more, self.refill.flatten()) {
            (Some(more), Some(passed)) => Some(more.min(passed)),
            (one, other) => one.or(other),
        }
    }

    fn pass(&mut self, seq: i64) {
        if let Some(passed) = &mut self.refill {
            *passed = Some(passed.map_or(seq, |passed| passed.min(seq)));
        } else {
            self.more = Some(self.more.map_or(seq, |more| more.min(seq)));
        }
    }

    /// The next row to send, if so many of the lane may be out.
    #[must_use]
    pub fn next(&self, window: usize) -> Option<&Slot<E>> {
        let at = self.slots.iter().position(|slot| slot.state != State::Out)?;
        let slot = self.slots.get(at)?;
        let turn = at < window && self.out() < window && self.bound().is_none_or(|bound| slot.seq < bound);
        (turn && slot.state == State::Ready && slot.row.is_some()).then_some(slot)
    }

    /// Removes a row: it is done, or somebody else's matter.
    pub fn remove(&mut self, seq: i64) -> Option<Slot<E>> {
        let at = self.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()?;
        self.slots.remove(at)
    }

    /// A row waits, and what comes after it with it: they need no memory meanwhile.
    pub fn hold(&mut self, seq: i64, state: State, displaced: &mut Vec<i64>) {
        let Ok(at) = self.slots.binary_search_by_key(&seq, |slot| slot.seq) else { return };
        if let Some(slot) = self.slots.get_mut(at) {
            slot.state = state;
            slot.row = None;
        }
        self.cut(at + 1, displaced);
    }

    /// Takes everything that is ready out of memory, but for so many rows.
    pub fn evict(&mut self, keep: usize, displaced: &mut Vec<i64>) {
        if let Some(first) = self.slots.iter().position(|slot| slot.state == State::Ready) {
            self.cut(first + keep, displaced);
        }
    }

    /// From where on its rows are to be read from the table, where it is time to.
    #[must_use]
    pub fn wants_refill(&self) -> Option<i64> {
        let more = self.more?;
        let low = self.slots.len() <= self.most / 4 && !self.slots.iter().any(Slot::is_held);
        (low && self.refill.is_none()).then_some(more)
    }

    /// They are being read.
    pub fn refilling(&mut self) {
        self.refill = Some(None);
    }

    /// They were not read.
    pub fn not_refilled(&mut self) {
        if let Some(Some(passed)) = self.refill.take() {
            self.pass(passed);
        }
    }

    /// They were read; `upto` is where the reading stopped, if there may be more. Rows follow by [`Lane::admit`].
    pub fn refilled(&mut self, upto: Option<i64>) {
        let passed = self.refill.take().flatten();
        let from = self.more.take();
        // Where a reading began before `more` and did not get so far, nothing is gained and nothing lost.
        self.more = upto.map(|upto| from.map_or(upto + 1, |from| from.max(upto + 1)));
        if let Some(passed) = passed {
            self.pass(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::Place;
    use super::*;

    fn slot(seq: i64) -> Slot<()> {
        let row = Row {
            place: Place { bucket: 0, seq },
            id: Uuid::nil(),
            destination: "broker".into(),
            key: Some("key".into()),
            size: 1,
            event: (),
        };
        let row = Some(Arc::new(row));
        Slot { seq, id: Uuid::nil(), row, state: State::Ready, attempts: 0, careful: false }
    }

    fn lane(seqs: impl IntoIterator<Item = i64>) -> Lane<()> {
        let mut lane = Lane::new(4);
        for seq in seqs {
            lane.admit(slot(seq), &mut Vec::new());
        }
        lane
    }

    fn out(lane: &mut Lane<()>, seq: i64) {
        lane.slot(seq).unwrap().state = State::Out;
    }

    fn next(lane: &Lane<()>) -> Option<i64> {
        lane.next(1).map(|slot| slot.seq)
    }

    // M32
    #[test]
    fn one_row_is_out_and_the_next_follows_when_it_is_done() {
        let mut lane = lane([1, 2]);
        assert_eq!(next(&lane), Some(1));
        out(&mut lane, 1);
        assert_eq!(next(&lane), None);
        lane.remove(1);
        assert_eq!(next(&lane), Some(2));
    }

    // M32: what a wider window would do.
    #[test]
    fn a_wider_window_lets_several_out() {
        let mut lane = lane([1, 2, 3]);
        out(&mut lane, 1);
        out(&mut lane, 2);
        assert_eq!(lane.next(2).map(|slot| slot.seq), None);
        assert_eq!(lane.next(3).map(|slot| slot.seq), Some(3));
    }

    // M36, case B56
    #[test]
    fn what_follows_a_failed_row_waits_outside_of_memory() {
        let mut lane = lane([1, 2, 3]);
        let mut displaced = Vec::new();
        lane.hold(1, State::Until(Duration::from_secs(1)), &mut displaced);
        assert_eq!(displaced, [2, 3]);
        assert_eq!(lane.admit(slot(4), &mut displaced), Admitted::Passed);
        assert_eq!((next(&lane), lane.loaded(), lane.wants_refill()), (None, (0, 0), None));
        lane.remove(1);
        assert_eq!(lane.wants_refill(), Some(2));
        lane.refilling();
        lane.refilled(None);
        for seq in [2, 3, 4] {
            assert_eq!(lane.admit(slot(seq), &mut displaced), Admitted::Kept);
        }
        assert_eq!(next(&lane), Some(2));
    }

    // M36
    #[test]
    fn a_row_that_passes_during_a_refill_is_not_overtaken() {
        let mut lane = lane([1, 2, 3, 4, 5]);
        for seq in 1..5 {
            lane.remove(seq);
        }
        assert_eq!(lane.wants_refill(), Some(5));
        lane.refilling();
        assert_eq!(lane.admit(slot(7), &mut Vec::new()), Admitted::Passed);
        // The refill began before 7 was committed, and shows 5 alone.
        lane.refilled(None);
        assert_eq!(lane.admit(slot(5), &mut Vec::new()), Admitted::Kept);
        assert_eq!(lane.admit(slot(8), &mut Vec::new()), Admitted::Passed);
        lane.remove(5);
        assert_eq!(lane.wants_refill(), Some(7));
    }

    proptest! {
        // M31, M32: rows appear in order; some are read by polls, some by refills; failures hold the lane. Whatever happens,
        // they are sent in their order and none is left.
        #[test]
        fn rows_are_sent_in_order_whatever_is_read_when(steps in prop::collection::vec(0_u8..8, 0..300)) {
            let (mut lane, mut table) = (Lane::new(3), BTreeSet::new());
            let (mut drawn, mut read, mut sent) = (0_i64, 0_i64, Vec::<i64>::new());
            let mut snapshot: Option<Vec<i64>> = None;
            let mut lost = Vec::new();
            // In the end everything that is left is worked off.
            let ending = [2, 3, 4, 7].repeat(400);
            for (number, step) in steps.iter().copied().chain(ending).enumerate() {
                match step {
                    0 | 1 => {
                        drawn += 1;
                        table.insert(drawn);
                    }
                    2 => for seq in table.range(read + 1..).copied().take(2).collect::<Vec<_>>() {
                        read = seq;
                        lane.admit(slot(seq), &mut lost);
                    },
                    3 => if let Some(from) = lane.wants_refill() {
                        lane.refilling();
                        snapshot = Some(table.range(from..).copied().take(2).collect());
                    },
                    4 => if let Some(rows) = snapshot.take() {
                        lane.refilled((rows.len() == 2).then(|| rows[1]));
                        for seq in rows.into_iter().filter(|seq| table.contains(seq)) {
                            lane.admit(slot(seq), &mut lost);
                        }
                    },
                    5 => if snapshot.take().is_some() { lane.not_refilled(); },
                    6 => if let Some(seq) = next(&lane) {
                        lane.hold(seq, State::Until(Duration::ZERO), &mut lost);
                        // Due again at once, and read again.
                        let held = lane.slot(seq).unwrap();
                        *held = slot(seq);
                    },
                    _ => if let Some(seq) = next(&lane) {
                        out(&mut lane, seq);
                        if number % 3 == 0 { prop_assert_eq!(next(&lane), None); }
                        sent.push(seq);
                        table.remove(&seq);
                        lane.remove(seq);
                    },
                }
                prop_assert!(lane.slots.len() <= 4);
            }
            prop_assert_eq!(sent, (1..=drawn).collect::<Vec<_>>());
            prop_assert!(lane.is_empty());
        }
    }
}
