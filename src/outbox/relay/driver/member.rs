//! Who relays, and what (M33, M39, M40).

use std::collections::HashMap;
use std::time::Duration;

use super::super::plan::rebalance;
use super::super::plan::schedule::{Owned, Scheduler};
use super::told::Load;
use crate::db::outbox::{Beat, Fence, Member, Taken};

/// A relay among relays.
pub(crate) struct Membership {
    pub(super) member: Member,
    pub(super) lease: Duration,
    /// Whether it has taken part; the first beat joins.
    pub(super) joined: bool,
    next_beat: Duration,
    beating: bool,
    /// So many buckets are to be taken.
    wanting: usize,
    taking: bool,
    /// Buckets that the scheduler has given up and the table still calls ours.
    releasing: HashMap<u8, i64>,
    /// Of these the call is under way.
    asked: Vec<Fence>,
    pub(super) ousted: bool,
    pub(super) leaving: bool,
}

impl Membership {
    pub(crate) fn new(member: Member, lease: Duration) -> Self {
        Self {
            member,
            lease,
            joined: false,
            next_beat: Duration::ZERO,
            beating: false,
            wanting: 0,
            taking: false,
            releasing: HashMap::new(),
            asked: Vec::new(),
            ousted: false,
            leaving: false,
        }
    }

    pub(super) const fn next_beat(&self) -> Duration {
        self.next_beat
    }

    /// Whether a beat is due: it begins.
    pub(super) fn begins_beat(&mut self, now: Duration) -> bool {
        let due = !self.is_busy() && !self.ousted && now >= self.next_beat;
        self.beating |= due;
        due
    }

    /// One call at a time: an answer that is older than another's effect would be misread.
    fn is_busy(&self) -> bool {
        self.beating || self.taking || !self.asked.is_empty()
    }

    /// How many buckets to take now, if any.
    pub(super) fn begins_taking(&mut self) -> Option<usize> {
        if self.is_busy() || self.wanting == 0 || self.leaving {
            return None;
        }
        self.taking = true;
        Some(self.wanting)
    }

    /// What to release now.
    pub(super) fn begins_releasing(
        &mut self,
        scheduler: &mut Scheduler<Load>,
        fence: impl Fn(Owned) -> Option<Fence>,
    ) -> Vec<Fence> {
        for owned in scheduler.drained() {
            self.releasing.insert(owned.bucket, owned.epoch);
        }
        if self.is_busy() {
            return Vec::new();
        }
        let owned = self.releasing.iter().map(|(bucket, epoch)| Owned { bucket: *bucket, epoch: *epoch });
        self.asked = owned.filter_map(fence).collect();
        self.asked.clone()
    }

    /// Whether buckets are still to be released.
    pub(super) fn releases(&self) -> bool {
        !self.releasing.is_empty()
    }

    pub(super) fn released(&mut self, fences: &[Fence], released: bool) {
        self.asked.clear();
        if released {
            for fence in fences {
                self.releasing.remove(&fence.bucket.number());
            }
        }
    }

    /// `asked`: when the beat was sent. The lease counts from there, since the server's begins later.
    pub(super) fn beaten(&mut self, scheduler: &mut Scheduler<Load>, asked: Duration, beat: Option<Beat>) {
        self.beating = false;
        let Some(beat) = beat else {
            // Soon again: the lease is a third shorter already.
            self.next_beat = asked + (self.lease / 10).min(Duration::from_secs(1));
            return;
        };
        self.next_beat = asked + self.lease / 3;
        match beat {
            Beat::Member { members, holdings } => {
                self.joined = true;
                scheduler.lease_until(asked + self.lease);
                self.compare(scheduler, &members, &holdings);
            }
            Beat::StandBy => {
                self.lose_all(scheduler);
                // Whoever relays may end at any time.
                self.next_beat = asked + (self.lease / 3).min(Duration::from_millis(500));
            }
            Beat::Ousted => {
                self.lose_all(scheduler);
                self.ousted = true;
            }
        }
    }

    fn compare(&mut self, scheduler: &mut Scheduler<Load>, members: &[String], holdings: &[Taken]) {
        let held: HashMap<u8, &Taken> =
            holdings.iter().map(|holding| (holding.fence.bucket.number(), holding)).collect();
        for owned in scheduler.owned() {
            if held.get(&owned.bucket).is_none_or(|holding| holding.fence.epoch != owned.epoch) {
                scheduler.lose(owned);
            }
        }
        self.releasing.retain(|bucket, epoch| held.get(bucket).is_some_and(|holding| holding.fence.epoch == *epoch));
        if !self.leaving {
            for (bucket, holding) in held {
                if self.releasing.get(&bucket) != Some(&holding.fence.epoch) {
                    own(scheduler, holding);
                }
            }
        }
        let step = rebalance(&self.member.name, members, &scheduler.held());
        step.surplus.into_iter().for_each(|bucket| scheduler.drain(bucket));
        self.wanting = step.wanting;
    }

    fn lose_all(&mut self, scheduler: &mut Scheduler<Load>) {
        scheduler.owned().into_iter().for_each(|owned| scheduler.lose(owned));
        self.releasing.clear();
        self.wanting = 0;
    }

    pub(super) fn taken(&mut self, scheduler: &mut Scheduler<Load>, taken: Option<&[Taken]>) {
        self.taking = false;
        // The rest at the next beat, which knows more.
        self.wanting = 0;
        if !self.leaving {
            taken.unwrap_or_default().iter().for_each(|taken| own(scheduler, taken));
        }
    }
}

fn own(scheduler: &mut Scheduler<Load>, taken: &Taken) {
    let owned = Owned { bucket: taken.fence.bucket.number(), epoch: taken.fence.epoch };
    scheduler.own(owned, taken.vanished);
}
