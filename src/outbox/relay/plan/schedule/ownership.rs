//! Buckets that come and go (M33).

use std::time::Duration;

use super::super::bucket::Bucket;
use super::{Owned, Scheduler};

impl<E> Scheduler<E> {
    /// A bucket is ours. `vanished`: whoever had it did not give it up, and may have died of what is pending (M34).
    pub fn own(&mut self, owned: Owned, vanished: bool) {
        let known = self.buckets.get(&owned.bucket).is_some_and(|bucket| bucket.epoch >= owned.epoch);
        if known {
            return;
        }
        if vanished {
            self.caution.begin_again();
        }
        self.owns += 1;
        // Who was at work in this bucket was not asked.
        self.horizon.reset();
        self.buckets.insert(owned.bucket, Bucket::new(owned.epoch, self.owns, vanished, self.settings.lane));
        self.listing.at_once();
        self.poke();
    }

    /// The lease holds until then, counted from before it was asked for: nothing is handed out afterwards.
    pub const fn lease_until(&mut self, until: Duration) {
        self.lease_until = until;
    }

    /// What the scheduler works on, what is being given up included.
    #[must_use]
    pub fn owned(&self) -> Vec<Owned> {
        self.buckets.iter().map(|(bucket, state)| Owned { bucket: *bucket, epoch: state.epoch }).collect()
    }

    /// What it does not give up.
    #[must_use]
    pub fn held(&self) -> Vec<u8> {
        self.buckets.iter().filter(|(_, state)| !state.draining).map(|(bucket, _)| *bucket).collect()
    }

    /// A bucket is somebody else's. What is out of it stays out, and is deleted if it is acked.
    pub fn lose(&mut self, owned: Owned) {
        if self.bucket(owned).is_some() {
            self.buckets.remove(&owned.bucket);
        }
    }

    /// A bucket is to be given up: nothing more of it is sent.
    pub fn drain(&mut self, bucket: u8) {
        if let Some(bucket) = self.buckets.get_mut(&bucket) {
            bucket.draining = true;
        }
    }

    /// All of them.
    pub fn drain_all(&mut self) {
        self.buckets.values_mut().for_each(|bucket| bucket.draining = true);
    }

    /// Those that are drained now: forgotten here, to be released in the table.
    pub fn drained(&mut self) -> Vec<Owned> {
        let writing: Vec<u8> = self
            .writes
            .iter()
            .map(|write| write.failure().row.place.bucket)
            .chain(self.writing.iter().map(|place| place.bucket))
            .collect();
        let drained: Vec<Owned> = self
            .buckets
            .iter()
            .filter(|(number, bucket)| {
                bucket.draining && bucket.out() == 0 && !self.acked.holds(**number) && !writing.contains(*number)
            })
            .map(|(number, bucket)| Owned { bucket: *number, epoch: bucket.epoch })
            .collect();
        for owned in &drained {
            self.buckets.remove(&owned.bucket);
        }
        drained
    }

    /// Destinations that can be asked again: what was passed over is read again.
    pub(super) fn catch_up(&mut self, now: Duration) {
        let mut again = false;
        for (name, destination) in &self.destinations {
            if !destination.is_away(now) {
                for bucket in self.buckets.values_mut() {
                    again |= bucket.catch_up(name);
                }
            }
        }
        if again {
            self.poke();
        }
    }
}
