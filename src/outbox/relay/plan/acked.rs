//! What the destination has and the table still shows (M32).

use std::collections::BTreeMap;

use super::Place;

/// Acked rows, until no answer of the database can show them any more. They are never sent again.
///
/// A row is remembered beyond its deletion: a statement that began before may still show it. Each reading of the table
/// therefore takes a number here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acked<T> {
    rows: BTreeMap<Place, Entry<T>>,
    waiting: Vec<Place>,
    /// Rows deleted, with the number of the first reading that began afterwards.
    deleted: Vec<(Place, u64)>,
    next: u64,
    reading: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry<T> {
    /// `None` once deleted.
    about: Option<T>,
}

impl<T> Default for Acked<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), waiting: Vec::new(), deleted: Vec::new(), next: 0, reading: Vec::new() }
    }
}

impl<T> Acked<T> {
    /// The destination has this row. Returns whether that is news: one that was sent by two owners is acked twice.
    pub fn acked(&mut self, place: Place, about: T) -> bool {
        let news = !self.contains(place);
        if news {
            self.rows.insert(place, Entry { about: Some(about) });
            self.waiting.push(place);
        }
        news
    }

    /// Whether the row is not to be sent.
    #[must_use]
    pub fn contains(&self, place: Place) -> bool {
        self.rows.contains_key(&place)
    }

    /// How many are not deleted yet.
    #[must_use]
    pub fn undeleted(&self) -> usize {
        self.rows.len() - self.deleted.len()
    }

    /// How many wait for their deletion to be asked for.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What was said of them.
    pub fn waits(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().filter_map(|place| self.rows.get(place)?.about.as_ref())
    }

    /// Whether one of this bucket is not deleted yet.
    #[must_use]
    pub fn holds(&self, bucket: u8) -> bool {
        self.rows.iter().any(|(place, entry)| place.bucket == bucket && entry.about.is_some())
    }

    /// At most so many rows to delete now, with what was said of them.
    pub fn to_delete(&mut self, most: usize) -> Vec<(Place, &T)> {
        let rest = self.waiting.split_off(most.min(self.waiting.len()));
        let batch = std::mem::replace(&mut self.waiting, rest);
        batch.into_iter().filter_map(|place| Some((place, self.rows.get(&place)?.about.as_ref()?))).collect()
    }

    /// The deletion has failed: they are deleted later.
    pub fn failed(&mut self, places: &[Place]) {
        self.waiting.extend(places.iter().filter(|place| self.rows.contains_key(place)));
    }

    /// They are deleted. Returns what was said of them.
    pub fn deleted(&mut self, places: &[Place]) -> Vec<T> {
        let mut told = Vec::with_capacity(places.len());
        for place in places {
            if let Some(about) = self.rows.get_mut(place).and_then(|entry| entry.about.take()) {
                told.push(about);
                self.deleted.push((*place, self.next));
            }
        }
        self.forget();
        told
    }

    /// A reading of the table begins.
    pub fn reading(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.reading.push(number);
        number
    }

    /// The reading of this number has ended, and what it showed was looked at.
    pub fn read(&mut self, number: u64) {
        self.reading.retain(|other| *other != number);
        self.forget();
    }

    fn forget(&mut self) {
        let oldest = self.reading.iter().min().copied().unwrap_or(self.next);
        let rows = &mut self.rows;
        self.deleted.retain(|(place, first)| {
            let still = oldest < *first;
            if !still {
                rows.remove(place);
            }
            still
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn place(seq: i64) -> Place {
        Place { bucket: 0, seq }
    }

    // M32
    #[test]
    fn an_acked_row_whose_deletion_failed_is_remembered() {
        let mut acked = Acked::default();
        acked.acked(place(1), "one");
        assert_eq!(acked.to_delete(10).len(), 1);
        assert!(acked.to_delete(10).is_empty());
        acked.failed(&[place(1)]);
        assert!(acked.contains(place(1)));
        assert_eq!(acked.to_delete(10), [(place(1), &"one")]);
        assert!(acked.holds(0));
        assert_eq!(acked.deleted(&[place(1)]), ["one"]);
        assert!(!acked.holds(0));
        assert!(!acked.contains(place(1)));
    }

    proptest! {
        // M32: whatever a statement shows that began before the deletion, the row is known when it is looked at.
        #[test]
        fn no_reading_shows_a_row_as_new(steps in prop::collection::vec((0_u8..4, 0_usize..8), 0..200)) {
            let mut acked: Acked<()> = Acked::default();
            let mut table: BTreeSet<i64> = (0..8).collect();
            let mut sent: BTreeSet<i64> = BTreeSet::new();
            let mut readings: Vec<(u64, BTreeSet<i64>)> = Vec::new();
            for (step, which) in steps {
                let seq = i64::try_from(which).unwrap();
                match step {
                    0 => if sent.insert(seq) { acked.acked(place(seq), ()); },
                    1 => {
                        let batch: Vec<Place> = acked.to_delete(2).into_iter().map(|(place, ())| place).collect();
                        if which % 3 == 0 {
                            acked.failed(&batch);
                        } else {
                            batch.iter().for_each(|place| { table.remove(&place.seq); });
                            acked.deleted(&batch);
                        }
                    }
                    2 => readings.push((acked.reading(), table.clone())),
                    _ => if !readings.is_empty() {
                        let (number, shown) = readings.remove(which % readings.len());
                        for seq in shown.intersection(&sent) {
                            prop_assert!(acked.contains(place(*seq)));
                        }
                        acked.read(number);
                    },
                }
            }
            for (number, _) in readings {
                acked.read(number);
            }
            prop_assert_eq!(acked.rows.len(), acked.undeleted());
        }
    }
}
