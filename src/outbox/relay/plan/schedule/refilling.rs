//! Rows that were left in the table for a while: those that failed and are due again, and those behind them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{Place, Row};
use super::{Action, Owned, Reading, Refill, Scheduler};

impl<E> Scheduler<E> {
    pub(super) fn read_due(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        let mut places = Vec::new();
        while places.len() < DUE
            && let Some((at, place)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.remove(&(at, place));
            if self.is_being_written(place) {
                // Its record first.
                self.timers.insert((now + self.settings.poll_least, place));
                break;
            }
            // A time that was changed since has a timer of its own.
            let bucket = self.buckets.get(&place.bucket).filter(|bucket| !bucket.draining);
            if bucket.is_some_and(|bucket| bucket.again(place.seq).is_some_and(|again| again <= now)) {
                places.push(place);
            }
        }
        if !places.is_empty() {
            actions.push(Action::Due(Reading(self.acked.reading()), places));
        }
    }

    /// Rows that were due were read; those that are missing are gone. `None`: the database has failed.
    pub fn due(&mut self, reading: Reading, places: &[Place], rows: Option<Vec<Row<E>>>, now: Duration) {
        let Some(rows) = rows else {
            self.acked.read(reading.0);
            self.database_failed(now);
            self.timers.extend(places.iter().map(|place| (now, *place)));
            return;
        };
        self.database_works();
        let mut rows: BTreeMap<Place, Row<E>> = rows.into_iter().map(|row| (row.place, row)).collect();
        for place in places {
            let Some(bucket) = self.buckets.get_mut(&place.bucket) else { continue };
            let row = rows.remove(place).filter(|_| !self.acked.contains(*place));
            let Some(row) = row else {
                if let Some(lane) = bucket.remove(place.seq) {
                    self.wake_lane(place.bucket, &lane);
                }
                continue;
            };
            if bucket.resume(row, now) {
                let lane = bucket.lane_of(place.seq).cloned();
                if let Some(lane) = lane {
                    self.wake_lane(place.bucket, &lane);
                }
            }
        }
        self.acked.read(reading.0);
    }

    pub(super) fn refill(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        for _ in 0..self.hungry.len() {
            if self.refilling >= REFILLS {
                return;
            }
            let Some(turn) = self.hungry.pop_front() else { return };
            let Some(destination) = self.destinations.get(turn.lane.destination()) else { continue };
            if destination.is_away(now) || destination.is_paused(&turn.lane) {
                self.hungry.push_back(turn);
                continue;
            }
            let Some(bucket) = self.buckets.get_mut(&turn.bucket).filter(|bucket| !bucket.draining) else { continue };
            let (epoch, settled) = (bucket.epoch, bucket.positions.settled());
            let from = bucket.lane(&turn.lane, |lane, _| {
                let from = lane.wants_refill();
                from.inspect(|_| lane.refilling())
            });
            let Some(from) = from.flatten() else { continue };
            self.refilling += 1;
            actions.push(Action::Refill(Refill {
                reading: Reading(self.acked.reading()),
                owned: Owned { bucket: turn.bucket, epoch },
                lane: turn.lane,
                // Also what has appeared late: what comes may follow it.
                from: from.min(settled + 1),
                most: u32::try_from(self.settings.lane).unwrap_or(u32::MAX),
            }));
        }
    }

    /// More of a lane was read. `None`: the database has failed.
    pub fn refilled(&mut self, refill: &Refill, rows: Option<Vec<Row<E>>>, now: Duration) {
        self.refilling -= 1;
        let failed = rows.is_none();
        let full = rows.as_ref().is_some_and(|rows| rows.len() >= refill.most as usize);
        let upto = rows.as_ref().and_then(|rows| rows.last()).map(|row| row.place.seq).filter(|_| full);
        if let Some(bucket) = self.bucket(refill.owned) {
            bucket.lane(&refill.lane, |lane, _| if failed { lane.not_refilled() } else { lane.refilled(upto) });
        }
        if failed {
            self.database_failed(now);
        } else {
            self.database_works();
        }
        if self.bucket(refill.owned).is_some() {
            for row in rows.into_iter().flatten() {
                self.admit(row, now);
            }
            self.wake_lane(refill.owned.bucket, &refill.lane);
        }
        // Now that what it has shown was looked at.
        self.acked.read(refill.reading.0);
    }
}

/// Rows that are due, read at once.
const DUE: usize = 256;
/// Lanes that are refilled at once.
const REFILLS: usize = 8;
