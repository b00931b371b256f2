//! One bucket in the hands of its owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{Admitted, Lane, LaneName, Place, Positions, Row, Slot, State};

/// What the table says of a row that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Note {
    /// The event's id.
    pub id: Uuid,
    /// Failed attempts, and those that were recorded beforehand and whose process vanished.
    pub attempts: u32,
    /// When it is tried again. `None`: it waits for an operator.
    pub again: Option<Duration>,
}

/// The rows of one bucket that are in memory, and what is known of the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Bucket<E> {
    pub(super) epoch: i64,
    /// As which of all it was taken.
    pub(super) born: u64,
    pub(super) positions: Positions,
    /// Rows that failed, by number. `None`: not read yet, and nothing else is before it is.
    pub(super) failing: Option<BTreeMap<i64, Note>>,
    /// Whether rows that are read now may have killed the owner before.
    pub(super) careful: bool,
    /// Whether it is given up as soon as nothing of it is out.
    pub(super) draining: bool,
    /// Whether the last poll got as much as it had asked for.
    pub(super) full: bool,
    /// Where a full pass has got to.
    pub(super) pass: Option<i64>,
    lanes: BTreeMap<LaneName, Lane<E>>,
    index: BTreeMap<i64, LaneName>,
    /// Destinations that could not be asked, and from where on their rows were passed over.
    behind: BTreeMap<Arc<str>, i64>,
    loaded: (usize, usize),
    out: usize,
    lane_most: usize,
}

impl<E> Bucket<E> {
    pub(super) fn new(epoch: i64, born: u64, careful: bool, lane_most: usize) -> Self {
        Self {
            epoch,
            born,
            positions: Positions::default(),
            failing: None,
            careful,
            draining: false,
            full: true,
            pass: None,
            lanes: BTreeMap::new(),
            index: BTreeMap::new(),
            behind: BTreeMap::new(),
            loaded: (0, 0),
            out: 0,
            lane_most,
        }
    }

    /// Rows in memory that are not out, and their bytes.
    pub(super) const fn loaded(&self) -> (usize, usize) {
        self.loaded
    }

    /// Rows that are out.
    pub(super) const fn out(&self) -> usize {
        self.out
    }

    /// Works on a lane, and keeps the sums.
    pub(super) fn lane<T>(
        &mut self,
        name: &LaneName,
        work: impl FnOnce(&mut Lane<E>, &mut Vec<i64>) -> T,
    ) -> Option<T> {
        let lane = self.lanes.get_mut(name)?;
        let ((rows, bytes), out) = (lane.loaded(), lane.out());
        let mut displaced = Vec::new();
        let told = work(lane, &mut displaced);
        let ((rows_now, bytes_now), out_now) = (lane.loaded(), lane.out());
        self.loaded = (self.loaded.0 + rows_now - rows, self.loaded.1 + bytes_now - bytes);
        self.out = self.out + out_now - out;
        if lane.is_empty() {
            self.lanes.remove(name);
        }
        for seq in displaced {
            self.index.remove(&seq);
            self.positions.pass(seq);
        }
        Some(told)
    }

    /// The lane of a row in memory.
    pub(super) fn lane_of(&self, seq: i64) -> Option<&LaneName> {
        self.index.get(&seq)
    }

    /// Whether a row of this number needs no second look.
    pub(super) fn knows(&self, seq: i64) -> bool {
        self.index.contains_key(&seq) || self.positions.has_passed(seq)
    }

    /// A row was read.
    pub(super) fn admit(&mut self, row: Row<E>, now: Duration) -> (Admitted, LaneName) {
        let Place { seq, .. } = row.place;
        let name = row.lane();
        let note =
            self.failing.as_ref().and_then(|failing| failing.get(&seq)).filter(|note| note.id == row.id).copied();
        let state = match note.map(|note| note.again) {
            None => State::Ready,
            Some(None) => State::Stopped,
            Some(Some(again)) if again <= now => State::Ready,
            Some(Some(again)) => State::Until(again),
        };
        // One that has no key and waits for an operator holds nobody up: the note is memory enough.
        if state == State::Stopped && name.key().is_none() {
            self.positions.pass(seq);
            return (Admitted::Passed, name);
        }
        let slot = Slot {
            seq,
            id: row.id,
            row: (state == State::Ready).then(|| Arc::new(row)),
            state,
            attempts: note.map_or(0, |note| note.attempts),
            careful: self.careful,
        };
        if !self.lanes.contains_key(&name) {
            self.lanes.insert(name.clone(), Lane::new(self.lane_most));
        }
        let admitted = self.lane(&name, |lane, displaced| lane.admit(slot, displaced)).unwrap_or(Admitted::Passed);
        match admitted {
            Admitted::Kept => {
                self.index.insert(seq, name.clone());
            }
            Admitted::Passed => self.positions.pass(seq),
            Admitted::Known => {}
        }
        (admitted, name)
    }

    /// A row is done, or gone.
    pub(super) fn remove(&mut self, seq: i64) -> Option<LaneName> {
        if let Some(failing) = &mut self.failing {
            failing.remove(&seq);
        }
        let name = self.index.remove(&seq)?;
        self.lane(&name, |lane, _| lane.remove(seq));
        Some(name)
    }

    /// When a row that waits is tried again.
    pub(super) fn again(&self, seq: i64) -> Option<Duration> {
        match self.index.get(&seq) {
            Some(name) => match self.lanes.get(name)?.state(seq)? {
                State::Until(again) => Some(again),
                State::Ready | State::Out | State::Stopped => None,
            },
            None => self.failing.as_ref()?.get(&seq)?.again,
        }
    }

    /// A row that was due was read: it may be sent in its turn. Returns whether it waited.
    pub(super) fn resume(&mut self, row: Row<E>, now: Duration) -> bool {
        let seq = row.place.seq;
        let Some(name) = self.index.get(&seq).cloned() else {
            // One with a key has a place among others, which the polls know.
            return row.key.is_none() && self.admit(row, now).0 == Admitted::Kept;
        };
        let waited = self.lane(&name, |lane, _| {
            let slot = lane.slot(seq).filter(|slot| matches!(slot.state, State::Until(_)))?;
            slot.state = State::Ready;
            slot.row = Some(Arc::new(row));
            Some(())
        });
        waited.flatten().is_some()
    }

    /// Somebody else has changed what is recorded of a row: it is looked at, at the time that this returns.
    pub(super) fn release(&mut self, seq: i64, note: Option<Note>, now: Duration) -> Duration {
        let again = note.and_then(|note| note.again).unwrap_or(now);
        let Some(failing) = &mut self.failing else { return again };
        let Some(known) = failing.get_mut(&seq) else { return again };
        *known = Note { again: Some(again), ..note.unwrap_or(Note { attempts: 0, ..*known }) };
        let attempts = known.attempts;
        if let Some(name) = self.index.get(&seq).cloned() {
            self.lane(&name, |lane, _| {
                let waiting = |state| matches!(state, State::Until(_) | State::Stopped);
                if let Some(slot) = lane.slot(seq).filter(|slot| waiting(slot.state)) {
                    slot.state = State::Until(again);
                    slot.attempts = attempts;
                }
            });
        }
        again
    }

    /// A row of a destination that cannot be asked is passed over.
    pub(super) fn leave_behind(&mut self, destination: &Arc<str>, seq: i64) {
        let from = self.behind.entry(Arc::clone(destination)).or_insert(seq);
        *from = seq.min(*from);
        self.positions.pass(seq);
    }

    /// The destination can be asked again. Returns whether rows are to be read again.
    pub(super) fn catch_up(&mut self, destination: &str) -> bool {
        let from = self.behind.remove(destination);
        if let Some(from) = from {
            self.positions.rewind(from - 1);
            self.full = true;
        }
        from.is_some()
    }

    /// Takes the rows of a destination out of memory, but for the first of so many lanes.
    pub(super) fn evict(&mut self, destination: &Arc<str>, keep: &mut usize) {
        let names: Vec<LaneName> =
            self.lanes.keys().filter(|name| name.destination() == destination).cloned().collect();
        for name in names {
            let stays = usize::from(*keep > 0);
            *keep -= stays;
            match name {
                LaneName::Alone(_, seq) if stays == 0 => {
                    let ready = self.lane(&name, |lane, _| {
                        let ready = lane.slot(seq).is_some_and(|slot| slot.state == State::Ready);
                        ready.then(|| lane.remove(seq))
                    });
                    if ready.flatten().is_some() {
                        self.index.remove(&seq);
                        self.leave_behind(destination, seq);
                    }
                }
                LaneName::Alone(..) => {}
                LaneName::Keyed(..) => {
                    self.lane(&name, |lane, displaced| lane.evict(stays, displaced));
                }
            }
        }
    }

    /// Whether rows of a destination were passed over, and so all that follow must be.
    pub(super) fn is_behind(&self, destination: &str) -> bool {
        self.behind.contains_key(destination)
    }

    /// A row waits for this time, or for an operator, and its lane with it.
    pub(super) fn hold(&mut self, seq: i64, note: Note) {
        if let Some(failing) = &mut self.failing {
            failing.insert(seq, note);
        }
        let Some(name) = self.index.get(&seq).cloned() else { return };
        if note.again.is_none() && name.key().is_none() {
            self.index.remove(&seq);
            self.lane(&name, |lane, _| lane.remove(seq));
            self.positions.pass(seq);
            return;
        }
        self.lane(&name, |lane, displaced| {
            lane.hold(seq, note.again.map_or(State::Stopped, State::Until), displaced);
            if let Some(slot) = lane.slot(seq) {
                slot.attempts = note.attempts;
                slot.careful = false;
            }
        });
    }

    /// All lanes.
    pub(super) fn lanes(&self) -> impl Iterator<Item = (&LaneName, &Lane<E>)> {
        self.lanes.iter()
    }
}
