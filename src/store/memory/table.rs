//! The records of a memory store, and every step that changes one.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::digest_map::{Digest, DigestMap};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::lookup::LookupKey;
use crate::policy::{Judgement, State, judge};
use crate::record::{Answer, Record};
use crate::store::{ClaimRequest, Kept, OnUnknown, Settlement, Token, Verdict, stored};

mod operate;

pub(super) use operate::Change;

/// A record is kept at least this long after it was settled (H44).
const LEAST_KEPT: Duration = Duration::from_secs(60);
/// How many expired records a claim sweeps on its way: more than it adds, so that the table shrinks by itself.
const SWEPT_PER_CLAIM: u32 = 4;

pub(super) struct Table {
    capacity: usize,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    by_key: DigestMap<Row>,
    /// When to look at which row again: one entry a row.
    due: BTreeSet<(Duration, Digest)>,
    /// The last fence of any key: one counter for all keys grows over release and expiry, too.
    last_fence: u64,
}

struct Row {
    lookup: LookupKey,
    fence: u64,
    fingerprint: Fingerprint,
    accepted: Duration,
    retention: Duration,
    /// Its entry in `Rows::due`.
    due: Duration,
    phase: Phase,
}

enum Phase {
    /// `held`: an attempt that stops is not followed by another one (S21).
    Running { owner: Token, lease_ends: Duration, attempt: u64, held: bool },
    /// The answer lies apart: rows move when the table grows.
    Completed { by: Token, attempt: u64, answer: Box<Answer>, expires: Duration },
}

/// Who holds a claim, and as which attempt.
#[derive(Clone)]
pub(super) struct Owner {
    digest: Digest,
    token: Token,
    pub(super) fence: u64,
    pub(super) attempt: u64,
    on_unknown: OnUnknown,
}

impl Table {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, rows: Mutex::default() }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    pub(super) fn claim(
        &self,
        request: &ClaimRequest,
        now: Duration,
        (lease, on_unknown): (Duration, OnUnknown),
    ) -> Result<Verdict<Owner>, Error> {
        let rows = &mut *self.lock();
        rows.sweep(now, SWEPT_PER_CLAIM);
        let digest = *request.lookup().digest();
        let mut attempt = 1;
        let mut accepted = now;
        match rows.by_key.get(&digest) {
            Some(row) if row.is_live(now) => {
                let judgement = judge(row.state(now), stored::compare(request, &row.fingerprint));
                match (judgement, row.answer()) {
                    (Judgement::Mismatch, _) => return Ok(Verdict::Mismatch),
                    (Judgement::Replay, Some(answer)) => {
                        let record = Record { fingerprint: row.fingerprint, answer: answer.clone() };
                        return Ok(Verdict::Replay(record));
                    }
                    (Judgement::Unknown, _) => return Ok(Verdict::Unknown),
                    // By the same request only: a mismatch was told above.
                    (Judgement::TakeOver, _) => {
                        accepted = row.accepted;
                        attempt = row.attempt() + 1;
                    }
                    _ => return Ok(Verdict::InProgress { retry_after: None }),
                }
            }
            Some(_) => {}
            None if rows.by_key.len() >= self.capacity => return Err(ErrorKind::Full.into()),
            None => {}
        }
        rows.last_fence += 1;
        let lease_ends = now.saturating_add(lease);
        let retention = request.retention();
        let due = lease_ends.max(accepted.saturating_add(retention));
        let held = on_unknown.holds_from_start();
        let phase = Phase::Running { owner: request.token(), lease_ends, attempt, held };
        let (lookup, fingerprint, fence) = (request.lookup().clone(), *request.fingerprint(), rows.last_fence);
        rows.put(digest, Row { lookup, fence, fingerprint, accepted, retention, due, phase });
        Ok(Verdict::Claimed(Owner { digest, token: request.token(), fence: rows.last_fence, attempt, on_unknown }))
    }

    pub(super) fn renew(&self, owner: &Owner, now: Duration, lease: Duration) -> Result<(), Error> {
        let mut rows = self.lock();
        match rows.owned(owner).map(|row| &mut row.phase) {
            Some(Phase::Running { lease_ends, .. }) => {
                *lease_ends = now.saturating_add(lease);
                Ok(())
            }
            _ => Err(ErrorKind::LeaseLost.into()),
        }
    }

    /// From here on an attempt that stops has called somebody else (S22).
    pub(super) fn dispatching(&self, owner: &Owner) -> Result<(), Error> {
        match self.lock().owned(owner).map(|row| &mut row.phase) {
            Some(Phase::Running { held, .. }) => {
                *held = owner.on_unknown.holds_dispatched();
                Ok(())
            }
            _ => Err(ErrorKind::LeaseLost.into()),
        }
    }

    /// Compares the owner's token in every case: a stale owner changes nothing (S3, case L12).
    pub(super) fn settle(&self, owner: &Owner, settlement: Settlement, now: Duration) -> Result<(), Error> {
        let rows = &mut *self.lock();
        let row = rows.owned(owner).ok_or(ErrorKind::LeaseLost)?;
        match settlement {
            Settlement::Commit(Kept { answer, retention }) | Settlement::Refuse(Kept { answer, retention }) => {
                let expires = row.accepted.saturating_add(retention).max(now + LEAST_KEPT);
                let (by, attempt) = (owner.token, owner.attempt);
                row.phase = Phase::Completed { by, attempt, answer: Box::new(answer), expires };
                rows.look_by(&owner.digest, expires);
            }
            Settlement::Abandon => drop(rows.take(&owner.digest)),
            Settlement::Unknown => {
                if let Some(row) = rows.take(&owner.digest) {
                    rows.put(owner.digest, row.stopped(now));
                }
            }
        }
        Ok(())
    }

    /// Settles, or finds that it is settled already by this owner.
    pub(super) fn record(&self, owner: &Owner, settlement: Settlement, now: Duration) -> Result<(), Error> {
        let is_done = matches!(
            self.lock().by_key.get(&owner.digest),
            Some(Row { phase: Phase::Completed { by, .. }, .. }) if *by == owner.token
        );
        if is_done { Ok(()) } else { self.settle(owner, settlement, now) }
    }

    pub(super) fn sweep(&self, now: Duration, limit: u32) -> u64 {
        self.lock().sweep(now, limit)
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // Nothing panics while the lock is held; a poisoned lock guards rows that are whole all the same.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// The row that `owner` still holds.
    fn owned(&mut self, owner: &Owner) -> Option<&mut Row> {
        let row = self.by_key.get_mut(&owner.digest)?;
        matches!(&row.phase, Phase::Running { owner: token, .. } if *token == owner.token).then_some(row)
    }

    fn put(&mut self, digest: Digest, row: Row) {
        let due = row.due;
        if let Some(replaced) = self.by_key.insert(digest, row) {
            self.due.remove(&(replaced.due, digest));
        }
        self.due.insert((due, digest));
    }

    /// Sees to it that a row is looked at by `due`. Earlier is as good: a sweep finds when it is really due.
    fn look_by(&mut self, digest: &Digest, due: Duration) {
        let Some(row) = self.by_key.get_mut(digest) else { return };
        if due < row.due {
            self.due.remove(&(row.due, *digest));
            self.due.insert((due, *digest));
            row.due = due;
        }
    }

    fn take(&mut self, digest: &Digest) -> Option<Row> {
        let row = self.by_key.remove(digest)?;
        self.due.remove(&(row.due, *digest));
        Some(row)
    }

    /// Forgets at most `limit` rows that have expired, running leases never before their end.
    fn sweep(&mut self, now: Duration, limit: u32) -> u64 {
        let mut swept = 0;
        while swept < u64::from(limit) {
            let Some((_, digest)) = self.due.first().copied().filter(|(due, _)| *due <= now) else { break };
            let Some(mut row) = self.take(&digest) else { break };
            if row.is_live(now) {
                // Renewed since, or settled with another retention.
                row.due = row.ends().max(now + Duration::from_millis(1));
                self.put(digest, row);
            } else {
                swept += 1;
            }
        }
        swept
    }
}

impl Row {
    /// An expired record counts as absent for everyone at once (H24); a held lease never expires.
    fn is_live(&self, now: Duration) -> bool {
        self.ends() > now
    }

    fn ends(&self) -> Duration {
        match &self.phase {
            Phase::Running { lease_ends, .. } => (*lease_ends).max(self.accepted.saturating_add(self.retention)),
            Phase::Completed { expires, .. } => *expires,
        }
    }

    fn state(&self, now: Duration) -> State {
        match &self.phase {
            Phase::Running { lease_ends, held, .. } => State::of_lease(*lease_ends <= now, *held),
            Phase::Completed { .. } => State::Completed,
        }
    }

    fn answer(&self) -> Option<&Answer> {
        match &self.phase {
            Phase::Running { .. } => None,
            Phase::Completed { answer, .. } => Some(answer),
        }
    }

    /// Its lease ends at once.
    fn stopped(mut self, now: Duration) -> Self {
        if let Phase::Running { lease_ends, .. } = &mut self.phase {
            *lease_ends = now;
        }
        self.due = self.ends().max(now);
        self
    }

    fn attempt(&self) -> u64 {
        match &self.phase {
            Phase::Running { attempt, .. } => *attempt,
            Phase::Completed { attempt, .. } => *attempt,
        }
    }
}
