//! What operators have changed (M35, M40).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::{LaneName, Note, Place};
use super::{Listed, Owned, Reading, Scheduler};

impl<E> Scheduler<E> {
    /// What is paused: destinations, or keys of them. `None`: the database has failed.
    pub fn paused(&mut self, paused: Option<Vec<(String, Option<String>)>>, now: Duration) {
        self.asking_paused.end(now);
        let Some(paused) = paused else {
            self.database_failed(now);
            return;
        };
        self.database_works();
        let mut resumed = Vec::new();
        for (name, destination) in &mut self.destinations {
            let of_this = || paused.iter().filter(|(paused, _)| **paused == **name);
            destination.paused = of_this().any(|(_, key)| key.is_none());
            let keys = of_this().filter_map(|(_, key)| key.as_deref()).map(Arc::from).collect();
            if destination.paused_keys != keys {
                destination.paused_keys = keys;
                resumed.push(Arc::clone(name));
            }
        }
        let mut woken = Vec::new();
        for (number, name) in resumed.iter().flat_map(|name| self.buckets.keys().map(move |number| (*number, name))) {
            let lanes: Vec<LaneName> = self.buckets.get(&number).map_or_else(Vec::new, |bucket| {
                let lanes = bucket.lanes().filter(|(lane, _)| lane.destination() == name && lane.key().is_some());
                lanes.map(|(lane, _)| lane.clone()).collect()
            });
            woken.extend(lanes.into_iter().map(|lane| (number, lane)));
        }
        for (number, lane) in woken {
            self.wake_lane(number, &lane);
        }
    }

    /// What has failed in these buckets. `None`: the database has failed.
    pub fn listed(&mut self, reading: Reading, asked: &[Owned], listed: Option<Vec<Listed>>, now: Duration) {
        self.acked.read(reading.0);
        let again = asked.len() < self.buckets.len();
        self.listing.end(now);
        let touched = std::mem::take(&mut self.touched);
        let Some(listed) = listed else {
            self.listing.at_once();
            self.database_failed(now);
            return;
        };
        self.database_works();
        let mut by_bucket: BTreeMap<u8, BTreeMap<i64, Note>> = BTreeMap::new();
        for Listed { place, note } in listed {
            by_bucket.entry(place.bucket).or_default().insert(place.seq, note);
        }
        let mut ready = false;
        for owned in asked {
            let mut notes = by_bucket.remove(&owned.bucket).unwrap_or_default();
            let Some(bucket) = self.bucket(*owned) else { continue };
            let Some(known) = &bucket.failing else {
                bucket.failing = Some(notes);
                ready = true;
                continue;
            };
            // What has changed, and was not changed by us meanwhile: an operator was here.
            let mut changed: Vec<(i64, Option<Note>)> = Vec::new();
            for (seq, note) in known {
                let told = notes.remove(seq);
                let released = note.again.is_none() && told.is_none_or(|told| told.again.is_some());
                if released || (told.is_none() && note.again.is_some()) {
                    changed.push((*seq, told));
                }
            }
            for (seq, told) in changed {
                let place = Place { bucket: owned.bucket, seq };
                if !touched.contains(&place) && !self.is_being_written(place) && !self.acked.contains(place) {
                    self.released(*owned, place, told, now);
                }
            }
        }
        if again {
            self.listing.at_once();
        }
        if ready {
            // Nothing of it could be read before.
            self.poke();
        }
    }

    /// An operator has taken back what held a row up, or has taken the row away: it is looked at.
    fn released(&mut self, owned: Owned, place: Place, note: Option<Note>, now: Duration) {
        let Some(bucket) = self.bucket(owned) else { return };
        let again = bucket.release(place.seq, note, now);
        self.timers.insert((again, place));
    }
}
