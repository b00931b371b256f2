//! The right to ask the store for a key, and the row that goes with it.

use std::collections::hash_map::Entry::Occupied;
use std::sync::Arc;

use super::queue::Turn;
use super::{Entry, Inflight, Row, Word};
use crate::digest_map::{Digest, DigestMap};
use crate::fingerprint::Fingerprint;
use crate::record::Record;
use crate::store::Fingerprints;

/// The right to ask the store for a key. Dropped without a word, the next one asks. `None`: the table was full.
pub(in crate::layer) struct Ticket(Option<Place>);

impl Ticket {
    pub(super) fn at(place: Place) -> Self {
        Self(Some(place))
    }

    /// To ask for oneself alone.
    pub(in crate::layer) fn without_place() -> Self {
        Self(None)
    }

    /// Claimed: from now on duplicates are judged by the owner's fingerprint. The row stays until the ticket goes,
    /// which is when the settlement has returned.
    pub(in crate::layer) fn running(&self, fingerprint: Fingerprint) {
        if let Some(place) = &self.0 {
            tell(place.replace(Entry::Running(fingerprint)), || Word::Running(fingerprint));
        }
    }

    /// It runs in another process. The ticket's holder goes on asking, for all who wait here.
    pub(in crate::layer) fn elsewhere(&self, asker: &Fingerprints) {
        if let Some(place) = &self.0 {
            tell(place.replace(Entry::Elsewhere(asker.clone())), || Word::InProgress(asker.clone(), None));
        }
    }

    /// A verdict that others may share. `word` is asked for only where somebody waits.
    pub(in crate::layer) fn share(&self, word: impl FnOnce() -> Word) {
        if let Some(place) = &self.0 {
            tell(place.leave(), word);
        }
    }

    /// The committed record, for all who wait.
    pub(in crate::layer) fn committed(&self, record: impl FnOnce() -> Arc<Record>) {
        if let Some(place) = &self.0 {
            place.settled(record);
        }
    }

    /// Where the ticket stands, for whoever learns that it is worth nothing any more.
    pub(in crate::layer) fn place(&self) -> Option<&Place> {
        self.0.as_ref()
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

fn tell(entry: Option<Entry>, word: impl FnOnce() -> Word) {
    if let Some(Entry::Asking(waiting)) = entry
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
pub(in crate::layer) struct Place {
    table: Arc<Inflight>,
    digest: Digest,
    id: u64,
}

impl Place {
    pub(super) fn new(table: Arc<Inflight>, digest: Digest, id: u64) -> Self {
        Self { table, digest, id }
    }

    /// Takes the row out. Whoever has waited longest gets the baton: the right to ask, before anybody new. One that has
    /// given up passes it on by dropping it.
    pub(in crate::layer) fn leave(&self) -> Option<Entry> {
        let (row, baton) = {
            let rows = &mut *self.table.lock();
            let mut row = self.take(&mut rows.by_key)?;
            // Passing it over those who gave up would take a call each.
            while row.queue.pop_front_if(|next| next.is_closed()).is_some() {}
            let baton = row.queue.pop_front().map(|next| {
                let rest = std::mem::take(&mut row.queue);
                (next, rows.ask(&self.table, self.digest, rest))
            });
            (row, baton)
        };
        if let Some((next, ticket)) = baton {
            // Refused, the ticket comes back and is dropped here, which passes it on.
            drop(next.send(Turn::Baton(ticket)));
        }
        Some(row.entry)
    }

    /// Whether somebody waits for the answer.
    pub(in crate::layer) fn has_queue(&self) -> bool {
        let rows = self.table.lock();
        rows.by_key.get(&self.digest).is_some_and(|row| row.id == self.id && !row.queue.is_empty())
    }

    /// Takes the row out and gives everybody who waits the record.
    pub(in crate::layer) fn settled(&self, record: impl FnOnce() -> Arc<Record>) {
        let row = self.take(&mut self.table.lock().by_key);
        let Some(row) = row else { return };
        let is_asked = matches!(&row.entry, Entry::Asking(waiting) if !waiting.is_empty());
        if !is_asked && row.queue.is_empty() {
            return;
        }
        let record = record();
        for sender in row.queue {
            let _ = sender.send(Turn::Settled(Arc::clone(&record)));
        }
        tell(Some(row.entry), || Word::Committed(record));
    }

    fn take(&self, by_key: &mut DigestMap<Row>) -> Option<Row> {
        match by_key.entry(self.digest) {
            Occupied(row) if row.get().id == self.id => Some(row.remove()),
            _ => None,
        }
    }

    fn replace(&self, entry: Entry) -> Option<Entry> {
        let rows = &mut *self.table.lock();
        let row = rows.by_key.get_mut(&self.digest).filter(|row| row.id == self.id)?;
        Some(std::mem::replace(&mut row.entry, entry))
    }
}
