//! The keys of this process: so that a thousand duplicates of one request cost one question to the store (H46), and
//! those that wait for its answer hold nothing but a place in a queue (H20).
//!
//! It is never the authority. A full table means no short cut, never a refusal.

mod queue;
mod ticket;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::digest_map::{Digest, DigestMap};
use crate::fingerprint::Fingerprint;
use crate::record::Record;
use crate::store::Fingerprints;

pub(super) use queue::{Caps, Queued, Seat, Turn};
pub(super) use ticket::{Place, Ticket};

/// More keys than this at once are not kept track of.
const CAPACITY: usize = 65_536;

#[derive(Default)]
pub(super) struct Inflight {
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    by_key: DigestMap<Row>,
    last_id: u64,
    /// How many requests wait, of all keys: in queues, or asking for others.
    waiting: usize,
}

struct Row {
    /// Tells it from a later row of the same key.
    id: u64,
    entry: Entry,
    /// Those who wait for the answer, longest first.
    queue: VecDeque<oneshot::Sender<Turn>>,
}

pub(super) enum Entry {
    /// A store call is under way; duplicates wait for its verdict, whatever their fingerprint.
    Asking(Vec<oneshot::Sender<Word>>),
    /// The handler runs.
    Running(Fingerprint),
    /// It runs in another process, as this request was told, which asks again from time to time.
    Elsewhere(Fingerprints),
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
    /// It runs in another process, as this request was told.
    Elsewhere(Fingerprints),
    /// Somebody is asking. An error of the receiver means: meet again.
    Wait(oneshot::Receiver<Word>),
}

impl Inflight {
    pub(super) fn meet(self: &Arc<Self>, digest: &Digest) -> Meeting {
        let rows = &mut *self.lock();
        let full = rows.by_key.len() >= CAPACITY;
        match rows.by_key.get_mut(digest).map(|row| &mut row.entry) {
            Some(Entry::Running(fingerprint)) => Meeting::Running(*fingerprint),
            Some(Entry::Elsewhere(asker)) => Meeting::Elsewhere(asker.clone()),
            Some(Entry::Asking(waiting)) => {
                let (sender, receiver) = oneshot::channel();
                // Whoever has given up waiting makes room for others.
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|sender| !sender.is_closed());
                }
                waiting.push(sender);
                Meeting::Wait(receiver)
            }
            None if full => Meeting::Ask(Ticket::without_place()),
            None => Meeting::Ask(rows.ask(self, *digest, VecDeque::new())),
        }
    }

    /// As [`Inflight::meet`] where nobody is at it; `None` where somebody is.
    pub(super) fn ask_alone(self: &Arc<Self>, digest: &Digest) -> Option<Ticket> {
        let rows = &mut *self.lock();
        if rows.by_key.contains_key(digest) {
            return None;
        }
        let full = rows.by_key.len() >= CAPACITY;
        Some(if full { Ticket::without_place() } else { rows.ask(self, *digest, VecDeque::new()) })
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

impl Rows {
    /// A new row, asked for by whoever gets the ticket.
    fn ask(&mut self, table: &Arc<Inflight>, digest: Digest, queue: VecDeque<oneshot::Sender<Turn>>) -> Ticket {
        self.last_id += 1;
        let id = self.last_id;
        self.by_key.insert(digest, Row { id, entry: Entry::Asking(Vec::new()), queue });
        Ticket::at(Place::new(Arc::clone(table), digest, id))
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
            _ => panic!("somebody is at it"),
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

    // H20: those who gave up waiting leave nothing behind in a queue without a cap, and passing the baton over many of
    // them takes no stack.
    #[test]
    fn a_queue_of_those_who_gave_up_is_short() {
        let table = Arc::<Inflight>::default();
        let ticket = ask(&table, 1);
        ticket.running(fingerprint());
        let caps = Caps { per_key: usize::MAX, in_all: usize::MAX };
        let queue = || match table.queue(&digest(1), caps) {
            Queued::Waiting(waiting) => waiting,
            _ => panic!("there is room"),
        };
        for _ in 0..100_000 {
            drop(queue());
        }
        assert!(table.lock().by_key[&digest(1)].queue.capacity() < 10);
        let many: Vec<_> = (0..100_000).map(|_| queue()).collect();
        drop(many);
        assert_eq!(table.waiting(), 0);
        drop(ticket);
        assert_eq!(table.len(), 0);
    }
}
