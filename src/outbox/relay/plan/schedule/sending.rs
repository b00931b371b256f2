//! What is handed out next.

use std::sync::Arc;
use std::time::Duration;

use super::super::{LaneName, State};
use super::destination::Turn;
use super::writing::Write;
use super::{Action, Failure, Handout, Owned, Scheduler};

impl<E> Scheduler<E> {
    pub(super) fn send(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        if now >= self.lease_until {
            return;
        }
        let names: Vec<Arc<str>> = self.destinations.keys().cloned().collect();
        for name in names {
            while let Some(turn) = self.next_turn(&name, now) {
                if !self.hand_out(&name, &turn, now, actions) {
                    break;
                }
            }
        }
    }

    fn next_turn(&mut self, destination: &str, now: Duration) -> Option<Turn> {
        let destination = self.destinations.get_mut(destination)?;
        if destination.may_send(now) { destination.ready.pop_front() } else { None }
    }

    /// Whether others of the destination may follow.
    fn hand_out(&mut self, name: &Arc<str>, turn: &Turn, now: Duration, actions: &mut Vec<Action<E>>) -> bool {
        let Some(destination) = self.destinations.get_mut(name) else { return false };
        let per_key = destination.destined.per_key;
        let Some(bucket) = self.buckets.get_mut(&turn.bucket) else { return true };
        let owned = Owned { bucket: turn.bucket, epoch: bucket.epoch };
        let unused = bucket.draining || destination.is_paused(&turn.lane);
        let caution = &mut self.caution;
        let most_attempts = destination.destined.rules.attempts.max(1);
        let window = &mut destination.window;
        let next = bucket.lane(&turn.lane, |lane, _| {
            lane.queued = false;
            let Some(next) = lane.next(per_key).filter(|_| !unused) else { return Next::Nothing };
            // In a bucket whose owner has vanished: its last attempt may have been that owner's last.
            let (seq, careful, suspect) = (next.seq, next.careful, next.attempts > 0);
            let Some(row) = next.row.clone() else { return Next::Nothing };
            if careful && next.attempts >= most_attempts {
                return Next::Park(row, next.attempts);
            }
            if !window.fits(row.size) {
                lane.queued = true;
                return Next::Full;
            }
            if careful && !caution.admits(suspect) {
                lane.queued = true;
                return Next::Careful { suspect };
            }
            window.enter(row.size);
            let Some(slot) = lane.slot(seq) else { return Next::Nothing };
            slot.state = State::Out;
            Next::Send { row, attempts: slot.attempts, careful }
        });
        match next.unwrap_or(Next::Nothing) {
            Next::Nothing => {}
            Next::Full => {
                destination.ready.push_front(turn.clone());
                return false;
            }
            Next::Careful { suspect: true } => destination.careful.push_front(turn.clone()),
            Next::Careful { suspect: false } => destination.careful.push_back(turn.clone()),
            Next::Park(row, attempts) => self.park(owned, &turn.lane, row, attempts),
            Next::Send { row, attempts, careful } => {
                destination.breaker.sent();
                if destination.window.events() == 1 {
                    // The silence before is not the destination's.
                    destination.heard = now;
                }
                let acks = destination.acks;
                let handout = Handout { owned, row, attempts, trial: careful, sent: now, acks };
                actions.push(if careful { Action::RecordTrial(handout) } else { Action::Publish(handout) });
                self.wake(turn.bucket, &turn.lane, per_key);
            }
        }
        true
    }

    /// A row that may have killed as many processes as are allowed.
    fn park(&mut self, owned: Owned, lane: &LaneName, row: Arc<super::super::Row<E>>, attempts: u32) {
        let (seq, id) = (row.place.seq, row.id);
        let note = super::super::Note { id, attempts, again: None };
        if let Some(bucket) = self.bucket(owned) {
            bucket.hold(seq, note);
        }
        self.count(&row.destination, |counts| counts.blocked += 1);
        let error: Arc<str> = "the process vanished while this event was published".into();
        self.writes.push_back(Write::Record(Failure {
            owned,
            row,
            attempts,
            count: 0,
            retry_in: None,
            again: None,
            error,
        }));
        self.wake_lane(owned.bucket, lane);
    }

    /// The attempt is on record, or not: then it is not made. `ours`: whether the bucket is still ours.
    pub fn recorded_trial(&mut self, handout: Handout<E>, recorded: Option<bool>, now: Duration) -> Option<Action<E>> {
        if recorded.is_some() {
            self.database_works();
        } else {
            self.database_failed(now);
        }
        if recorded == Some(true) && now < self.lease_until && self.bucket(handout.owned).is_some() {
            return Some(Action::Publish(Handout { sent: now, ..handout }));
        }
        self.resolve_caution();
        let Handout { owned, row, attempts, .. } = handout;
        let (bucket, lane) = (owned.bucket, row.lane());
        if let Some(destination) = self.destinations.get_mut(&row.destination) {
            destination.window.leave(row.size);
            destination.breaker.withdrawn(now);
        }
        if recorded == Some(false) {
            self.doubt(owned, &row, attempts, now);
        } else if let Some(bucket) = self.bucket(owned) {
            bucket.lane(&lane, |lane, _| {
                if let Some(slot) = lane.slot(row.place.seq) {
                    slot.state = State::Ready;
                }
            });
        }
        self.wake_lane(bucket, &lane);
        None
    }

    /// A row could not be changed: it is gone, or its bucket is somebody else's, which the next beat says. Its lane must not go
    /// on without it before that is known: the next owner may not have sent it yet (M32).
    pub(super) fn doubt(&mut self, owned: Owned, row: &super::super::Row<E>, attempts: u32, now: Duration) {
        let (place, again) = (row.place, now + self.settings.look);
        let note = super::super::Note { id: row.id, attempts, again: Some(again) };
        if let Some(bucket) = self.bucket(owned) {
            bucket.hold(place.seq, note);
            self.timers.insert((again, place));
        }
    }

    /// A careful row is no longer out: others may go.
    pub(super) fn resolve_caution(&mut self) {
        if self.caution.resolved() {
            for destination in self.destinations.values_mut() {
                while let Some(turn) = destination.careful.pop_back() {
                    destination.ready.push_front(turn);
                }
            }
        }
    }
}

enum Next<E> {
    Nothing,
    Full,
    Careful { suspect: bool },
    Park(Arc<super::super::Row<E>>, u32),
    Send { row: Arc<super::super::Row<E>>, attempts: u32, careful: bool },
}
