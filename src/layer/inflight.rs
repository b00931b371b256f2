//! The keys of this process: so that a thousand duplicates of one request cost one question to the store (H46).
//!
//! It is never the authority. A full table means no short cut, never a refusal.

use std::collections::HashMap;
use std::collections::hash_map::Entry::Occupied;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::fingerprint::Fingerprint;
use crate::record::Record;
use crate::store::Fingerprints;

type Digest = [u8; 32];

/// More keys than this at once are not kept track of.
const CAPACITY: usize = 65_536;

#[derive(Default)]
pub(super) struct Inflight {
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    by_key: HashMap<Digest, Row>,
    last_id: u64,
}

struct Row {
    /// Tells it from a later row of the same key.
    id: u64,
    entry: Entry,
}

pub(super) enum Entry {
    /// A store call is under way; duplicates wait for its verdict, whatever their fingerprint.
    Asking(Vec<oneshot::Sender<Word>>),
    /// The handler runs.
    Running(Fingerprint),
}

/// What the one who asked has learned, for those who waited.
#[derive(Clone)]
pub(super) enum Word {
    /// It runs here, for a request with this fingerprint.
    Running(Fingerprint),
    /// It is done; the record is committed.
    Committed(Arc<Record>),
    /// The store told this request that the key is another's.
    Mismatch(Fingerprints),
    /// The store told this request that it runs elsewhere, and when to ask again.
    InProgress(Fingerprints, Option<Duration>),
}

/// What a request finds.
pub(super) enum Meeting {
    /// Nobody is at it: ask the store.
    Ask(Ticket),
    /// It runs in this process.
    Running(Fingerprint),
    /// Somebody is asking. An error of the receiver means: meet again.
    Wait(oneshot::Receiver<Word>),
}

impl Inflight {
    pub(super) fn meet(self: &Arc<Self>, digest: &Digest) -> Meeting {
        let rows = &mut *self.lock();
        let full = rows.by_key.len() >= CAPACITY;
        match rows.by_key.get_mut(digest).map(|row| &mut row.entry) {
            Some(Entry::Running(fingerprint)) => Meeting::Running(*fingerprint),
            Some(Entry::Asking(waiting)) => {
                let (sender, receiver) = oneshot::channel();
                // Whoever has given up waiting makes room for others.
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|sender| !sender.is_closed());
                }
                waiting.push(sender);
                Meeting::Wait(receiver)
            }
            None if full => Meeting::Ask(Ticket(None)),
            None => {
                rows.last_id += 1;
                let row = Row { id: rows.last_id, entry: Entry::Asking(Vec::new()) };
                let place = Place { table: Arc::clone(self), digest: *digest, id: row.id };
                rows.by_key.insert(*digest, row);
                Meeting::Ask(Ticket(Some(place)))
            }
        }
    }

    /// How many keys are asked for or running.
    pub(super) fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // Nothing panics under the lock; the table is a short cut and may be read in any case.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to ask the store for a key. Dropped without a word, the next one asks. `None`: the table was full.
pub(super) struct Ticket(Option<Place>);

impl Ticket {
    /// Claimed: from now on duplicates are judged by the owner's fingerprint. The row stays until the ticket goes,
    /// which is when the settlement has returned.
    pub(super) fn running(&self, fingerprint: Fingerprint) {
        if let Some(place) = &self.0 {
            tell(place.run(fingerprint), || Word::Running(fingerprint));
        }
    }

    /// A verdict that others may share. `word` is asked for only where somebody waits.
    pub(super) fn share(self, word: impl FnOnce() -> Word) {
        if let Some(place) = &self.0 {
            tell(place.leave(), word);
        }
    }

    /// Where the ticket stands, for whoever learns that it is worth nothing any more.
    pub(super) fn place(&self) -> Option<Place> {
        self.0.clone()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            // Those who wait are woken when their senders go: after the lock.
            drop(place.leave());
        }
    }
}

fn tell(row: Option<Entry>, word: impl FnOnce() -> Word) {
    if let Some(Entry::Asking(waiting)) = row
        && !waiting.is_empty()
    {
        let word = word();
        for sender in waiting {
            // Nobody there: the request has given up.
            let _ = sender.send(word.clone());
        }
    }
}

/// A row of the table, as long as it is the same one.
#[derive(Clone)]
pub(super) struct Place {
    table: Arc<Inflight>,
    digest: Digest,
    id: u64,
}

impl Place {
    /// Takes the row out.
    pub(super) fn leave(&self) -> Option<Entry> {
        match self.table.lock().by_key.entry(self.digest) {
            Occupied(row) if row.get().id == self.id => Some(row.remove().entry),
            _ => None,
        }
    }

    fn run(&self, fingerprint: Fingerprint) -> Option<Entry> {
        let rows = &mut *self.table.lock();
        let row = rows.by_key.get_mut(&self.digest).filter(|row| row.id == self.id)?;
        Some(std::mem::replace(&mut row.entry, Entry::Running(fingerprint)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Profile;

    fn fingerprint() -> Fingerprint {
        Fingerprint::new(Profile::from_bytes([0; 8]), [0; 32])
    }

    fn digest(number: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    fn ask(table: &Arc<Inflight>, number: usize) -> Ticket {
        match table.meet(&digest(number)) {
            Meeting::Ask(ticket) => ticket,
            Meeting::Running(_) | Meeting::Wait(_) => panic!("somebody is at it"),
        }
    }

    // H46, case K17: no short cut, never a refusal; and empty afterwards.
    #[test]
    fn a_full_table_means_no_short_cut() {
        let table = Arc::<Inflight>::default();
        let tickets: Vec<_> = (0..CAPACITY).map(|number| ask(&table, number)).collect();
        for _ in 0..2 {
            let beyond = ask(&table, CAPACITY);
            beyond.running(fingerprint());
            let also_beyond = ask(&table, CAPACITY);
            also_beyond.share(|| Word::Running(fingerprint()));
        }
        // Those that are in it still find each other.
        assert!(matches!(table.meet(&digest(7)), Meeting::Wait(_)));
        assert_eq!(table.len(), CAPACITY);
        drop(tickets);
        assert_eq!(table.len(), 0);
    }

    // H46
    #[test]
    fn a_ticket_takes_no_entry_of_somebody_else_with_it() {
        let table = Arc::<Inflight>::default();
        let first = ask(&table, 1);
        first.share(|| Word::Running(fingerprint()));
        let second = ask(&table, 1);
        second.running(fingerprint());
        assert!(matches!(table.meet(&digest(1)), Meeting::Running(_)));
        drop(second);
        assert_eq!(table.len(), 0);
    }

    // H46, S20: whoever knows the place may clear it, once, and never a later one.
    #[test]
    fn a_place_is_left_once_and_no_later_one_with_it() {
        let table = Arc::<Inflight>::default();
        let first = ask(&table, 1);
        first.running(fingerprint());
        let place = first.place().unwrap();
        assert!(place.leave().is_some());
        let second = ask(&table, 1);
        assert!(place.leave().is_none());
        drop(first);
        assert!(matches!(table.meet(&digest(1)), Meeting::Wait(_)));
        drop(second);
        assert_eq!(table.len(), 0);
    }

    // H46: whoever has given up waiting leaves nothing behind.
    #[test]
    fn those_who_gave_up_waiting_make_room() {
        let table = Arc::<Inflight>::default();
        let _ticket = ask(&table, 1);
        for _ in 0..1000 {
            assert!(matches!(table.meet(&digest(1)), Meeting::Wait(_)));
        }
        let rows = table.lock();
        let Some(Entry::Asking(waiting)) = rows.by_key.get(&digest(1)).map(|row| &row.entry) else {
            panic!("somebody asks")
        };
        assert!(waiting.capacity() < 10, "{}", waiting.capacity());
    }
}
