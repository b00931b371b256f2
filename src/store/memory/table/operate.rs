//! The table as operators see it (S8).

use std::time::Duration;

use super::{LEAST_KEPT, Phase, Row, Rows, Table};
use crate::digest_map::Digest;
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::State;
use crate::scope::ScopeId;
use crate::store::stats::ByState;
use crate::store::{Count, Entry, Fence, Kept, KeyStats, Operated, Token};

/// What an operator does with a record.
pub(in crate::store::memory) enum Change {
    Release,
    Settle(Box<Kept>),
    Forget,
}

impl Table {
    /// The records of one key.
    pub(in crate::store::memory) fn find(
        &self,
        (scope, key, endpoint): (&ScopeId, &Key, Option<&Endpoint>),
        now: Duration,
    ) -> Vec<Entry> {
        let is_asked_for = |lookup: &LookupKey| {
            lookup.scope() == scope && lookup.key() == key && endpoint.is_none_or(|asked| lookup.endpoint() == asked)
        };
        let rows = self.lock();
        let found = rows.by_key.values().filter(|row| row.is_live(now) && is_asked_for(&row.lookup));
        found.map(|row| row.entry(now)).collect()
    }

    /// The oldest records that wait for somebody.
    pub(in crate::store::memory) fn stuck(&self, older_than: Duration, limit: u32, now: Duration) -> Vec<Entry> {
        let waits = |row: &&Row| match row.state(now) {
            State::Running => now.saturating_sub(row.accepted) >= older_than,
            State::Completed => false,
            State::Lapsed | State::Unknown | State::Orphaned => true,
        };
        let mut found: Vec<_> = {
            let rows = self.lock();
            rows.by_key.values().filter(|row| row.is_live(now)).filter(waits).map(|row| row.entry(now)).collect()
        };
        found.sort_by_key(|entry| std::cmp::Reverse(entry.age));
        found.truncate(limit.try_into().unwrap_or(usize::MAX));
        found
    }

    /// Every record, by its state.
    pub(in crate::store::memory) fn stats(&self, now: Duration) -> KeyStats {
        let (mut stats, mut live, mut expired, mut overdue) = (KeyStats::empty(), ByState::default(), 0, None);
        let rows = self.lock();
        for row in rows.by_key.values() {
            if row.is_live(now) {
                live.add(row.state(now));
            } else {
                expired += 1;
                overdue = overdue.max(Some(now.saturating_sub(row.ends())));
            }
        }
        stats.records = Count::Exactly(u64::try_from(rows.by_key.len()).unwrap_or(u64::MAX));
        drop(rows);
        live.report(&mut stats, Count::Exactly);
        KeyStats { expired: Count::Exactly(expired), overdue, ..stats }
    }

    pub(in crate::store::memory) fn change(&self, entry: &Entry, change: Change, now: Duration) -> Operated {
        let rows = &mut *self.lock();
        let digest = entry.lookup.digest();
        let is_meant = |row: &&Row| row.is_live(now) && Some(row.token()) == entry.token;
        let Some(row) = rows.by_key.get(digest).filter(is_meant) else { return Operated::Changed };
        match (row.state(now), change) {
            (State::Running, _) => Operated::InProgress,
            (State::Completed, Change::Release | Change::Settle(_)) => Operated::Changed,
            (State::Completed, Change::Forget) if entry.state != State::Completed => Operated::Changed,
            (_, Change::Forget) => {
                rows.take(digest);
                Operated::Done
            }
            (_, Change::Release) => rows.replace(digest, |row| row.released(now)),
            (_, Change::Settle(kept)) => rows.replace(digest, |row| row.settled(*kept, now)),
        }
    }
}

impl Rows {
    fn replace(&mut self, digest: &Digest, change: impl FnOnce(Row) -> Row) -> Operated {
        let Some(row) = self.take(digest) else { return Operated::Changed };
        self.put(*digest, change(row));
        Operated::Done
    }
}

impl Row {
    fn token(&self) -> Token {
        match self.phase {
            Phase::Running { owner, .. } => owner,
            Phase::Completed { by, .. } => by,
        }
    }

    /// The next request takes it over, as after a lease that ended.
    fn released(mut self, now: Duration) -> Self {
        if let Phase::Running { held, .. } = &mut self.phase {
            *held = false;
        }
        self.stopped(now)
    }

    fn settled(self, kept: Kept, now: Duration) -> Self {
        let expires = self.accepted.saturating_add(kept.retention).max(now + LEAST_KEPT);
        let phase =
            Phase::Completed { by: self.token(), attempt: self.attempt(), answer: Box::new(kept.answer), expires };
        Self { due: expires, phase, ..self }
    }

    fn entry(&self, now: Duration) -> Entry {
        let mut entry = Entry::new(self.lookup.clone(), self.state(now), self.token());
        entry.attempt = self.attempt();
        entry.fence = Some(Fence(self.fence));
        entry.age = now.saturating_sub(self.accepted);
        entry.expires_in = self.ends().saturating_sub(now);
        entry.status = self.answer().map(|answer| answer.status);
        if let Phase::Running { lease_ends, .. } = &self.phase {
            entry.lease_left = Some(lease_ends.saturating_sub(now)).filter(|left| !left.is_zero());
        }
        entry
    }
}
