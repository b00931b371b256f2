//! What is deleted and recorded.

use std::time::Duration;

use uuid::Uuid;

use super::super::Place;
use super::{Action, Failure, Scheduler};

/// A change of one row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Write<E> {
    Record(Failure<E>),
    Bury(Failure<E>),
}

impl<E> Write<E> {
    pub(super) const fn failure(&self) -> &Failure<E> {
        match self {
            Self::Record(failure) | Self::Bury(failure) => failure,
        }
    }
}

impl<E> Scheduler<E> {
    pub(super) fn write(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        if self.begins_deleting(now) {
            let batch = self.acked.to_delete(MOST_DELETED);
            let batch: Vec<(Place, Uuid)> = batch.into_iter().map(|(place, ack)| (place, ack.id)).collect();
            if !batch.is_empty() {
                self.deleting = true;
                self.next_deletion = now + self.settings.delete_least;
                actions.push(Action::Delete(batch));
            }
        }
        for _ in 0..self.writes.len() {
            if self.writing.len() >= MOST_WRITING {
                break;
            }
            let Some(write) = self.writes.pop_front() else { break };
            let place = write.failure().row.place;
            // One at a time of each row: the last one counts.
            if self.writing.contains(&place) {
                self.writes.push_back(write);
                continue;
            }
            self.writing.insert(place);
            actions.push(match write {
                Write::Record(failure) => Action::Record(failure),
                Write::Bury(failure) => Action::Bury(failure),
            });
        }
    }

    /// A window holds what is acked until it is deleted, so waiting adds nothing to what a crash sends twice.
    fn begins_deleting(&self, now: Duration) -> bool {
        let waiting = self.acked.waiting();
        let quarter = |most: usize| (most / 4).max(1);
        let many = || {
            let bytes = || self.acked.waits().map(|ack| ack.size).sum::<usize>();
            waiting >= quarter(self.settings.window_events) || bytes() >= quarter(self.settings.window_bytes)
        };
        !self.deleting && waiting > 0 && (self.stopping || now >= self.next_deletion || many())
    }

    /// Acked rows are deleted, or not.
    pub fn deleted(&mut self, batch: &[(Place, Uuid)], deleted: bool, now: Duration) {
        self.deleting = false;
        let places: Vec<Place> = batch.iter().map(|(place, _)| *place).collect();
        if !deleted {
            self.acked.failed(&places);
            self.database_failed(now);
            return;
        }
        self.database_works();
        for ack in self.acked.deleted(&places) {
            if let Some(destination) = self.destinations.get_mut(&ack.destination) {
                destination.window.leave(ack.size);
            }
        }
    }

    /// A failure is on record. `None`: the database has failed; `false`: the bucket is not ours, or the row is gone.
    pub fn recorded(&mut self, failure: Failure<E>, recorded: Option<bool>, now: Duration) {
        if self.written(&failure, recorded, now) {
            self.writes.push_back(Write::Record(failure));
        }
    }

    /// An event is a dead letter; told as in [`Scheduler::recorded`].
    pub fn buried(&mut self, failure: Failure<E>, buried: Option<bool>, now: Duration) {
        if self.written(&failure, buried, now) {
            self.writes.push_back(Write::Bury(failure));
            return;
        }
        let (place, lane) = (failure.row.place, failure.row.lane());
        match buried {
            Some(true) => {
                self.count(&failure.row.destination, |counts| counts.dead += 1);
                if let Some(bucket) = self.bucket(failure.owned) {
                    bucket.remove(place.seq);
                }
            }
            _ => self.doubt(failure.owned, &failure.row, failure.attempts, now),
        }
        self.wake_lane(place.bucket, &lane);
    }

    /// Whether it is to be written again.
    fn written(&mut self, failure: &Failure<E>, written: Option<bool>, now: Duration) -> bool {
        let place = failure.row.place;
        self.writing.remove(&place);
        if self.listing.is_under_way() {
            self.touched.insert(place);
        }
        if written.is_some() {
            self.database_works();
            return false;
        }
        self.database_failed(now);
        self.bucket(failure.owned).is_some()
    }

    /// Whether a row's record is about to change, or changed since the listing under way began.
    pub(super) fn is_being_written(&self, place: Place) -> bool {
        self.writing.contains(&place)
            || self.touched.contains(&place)
            || self.writes.iter().any(|write| write.failure().row.place == place)
    }
}

const MOST_DELETED: usize = 1_000;
const MOST_WRITING: usize = 16;
