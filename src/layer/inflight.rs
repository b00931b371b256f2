//! The keys of this process: so that a thousand duplicates of one request cost one question to the store (H46).
//!
//! It is never the authority. A full table means no short cut, never a refusal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::fingerprint::Fingerprint;
use crate::record::Record;

type Digest = [u8; 32];

/// More keys than this at once are not kept track of.
const CAPACITY: usize = 65_536;

#[derive(Default)]
pub(super) struct Inflight {
    entries: Mutex<HashMap<Digest, Entry>>,
}

enum Entry {
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
    /// The store told a request with this fingerprint that the key is another's.
    Mismatch(Fingerprint),
    /// The store told a request with this fingerprint that the same request runs elsewhere, and when to ask again.
    InProgress(Fingerprint, Option<Duration>),
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
        let mut entries = self.lock();
        let full = entries.len() >= CAPACITY;
        match entries.get_mut(digest) {
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
            None if full => Meeting::Ask(Ticket { table: None, digest: *digest }),
            None => {
                entries.insert(*digest, Entry::Asking(Vec::new()));
                Meeting::Ask(Ticket { table: Some(Arc::clone(self)), digest: *digest })
            }
        }
    }

    /// How many keys are asked for or running.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Entry>> {
        // Nothing panics under the lock; the table is a short cut and may be read in any case.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to ask the store for a key. Dropped without a word, the next one asks.
pub(super) struct Ticket {
    table: Option<Arc<Inflight>>,
    digest: Digest,
}

impl Ticket {
    /// Claimed: from now on duplicates are judged by the owner's fingerprint. The entry stays until the ticket goes,
    /// which is when the settlement has returned.
    pub(super) fn running(&self, fingerprint: Fingerprint) {
        self.replace(Some(Entry::Running(fingerprint)), || Word::Running(fingerprint));
    }

    /// A verdict that others may share. `word` is asked for only where somebody waits.
    pub(super) fn share(mut self, word: impl FnOnce() -> Word) {
        self.replace(None, word);
        // The next entry under this key is somebody else's.
        self.table = None;
    }

    fn replace(&self, entry: Option<Entry>, word: impl FnOnce() -> Word) {
        let Some(table) = &self.table else { return };
        let before = {
            let mut entries = table.lock();
            match entry {
                Some(entry) => entries.insert(self.digest, entry),
                None => entries.remove(&self.digest),
            }
        };
        if let Some(Entry::Asking(waiting)) = before
            && !waiting.is_empty()
        {
            let word = word();
            for sender in waiting {
                // Nobody there: the request has given up.
                let _ = sender.send(word.clone());
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            // Those who wait are woken when the entry goes: after the lock.
            let entry = table.lock().remove(&self.digest);
            drop(entry);
        }
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

    // H46: whoever has given up waiting leaves nothing behind.
    #[test]
    fn those_who_gave_up_waiting_make_room() {
        let table = Arc::<Inflight>::default();
        let _ticket = ask(&table, 1);
        for _ in 0..1000 {
            assert!(matches!(table.meet(&digest(1)), Meeting::Wait(_)));
        }
        let entries = table.lock();
        let Some(Entry::Asking(waiting)) = entries.get(&digest(1)) else { panic!("somebody asks") };
        assert!(waiting.capacity() < 10, "{}", waiting.capacity());
    }
}
