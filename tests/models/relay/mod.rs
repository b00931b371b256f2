//! Two relays, one bucket: two events of one key, and one of another whose transaction commits late.
//!
//! The crate's own: the whole scheduler (`outbox::relay::plan`), one in each relay. Modelled after their texts: what is read and
//! written by `src/db/postgres/outbox/sql.rs`. Rows are read in one snapshot and may be looked at later; a row is deleted by
//! its place and id, whoever asks; attempts are recorded and dead letters made by the bucket's owner in its epoch alone.
//! Looks that nothing races with are answered at once. A destination that has an event acks it again and never refuses it.
//!
//! Time passes when nothing is under way, and for whoever is stalled. Whatever is still pending after `TICKS` of it is stuck.

mod actions;
mod driver;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use idempotency::outbox::relay::plan::schedule::{
    Destined, Failure, Handout, Owned, Polled, Reading, Scheduler, Settings,
};
use idempotency::outbox::relay::plan::{Backoff, OnExhausted, OnUnknown, Place, Rules};
use stateright::{Model, Property};
use uuid::Uuid;

pub(super) use actions::Action;

/// One thing done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mistake {
    Nothing,
    /// Two events of a key are out at once.
    WindowOfTwo,
    /// A row is deleted before its event is acked.
    DeletesBeforeAck,
    /// A dead letter is made by whoever once owned the bucket.
    BuriesWithoutEpoch,
    /// An answer that does not come counts as an ack.
    UnknownIsAcked,
    /// A deletion is reported before it is done.
    ReportsDeletionEarly,
    /// Rows that appear late below what was read are not looked for, by spans or by passes.
    NoLookBelow,
}

#[derive(Clone, Debug)]
pub(super) struct Relays {
    pub(super) mistake: Mistake,
    /// Whether there is the event that commits late.
    pub(super) late: bool,
    pub(super) faults: Faults,
}

/// How often something goes wrong, of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Faults {
    /// A relay dies.
    pub(super) crashes: u8,
    /// A relay stalls beyond its lease.
    pub(super) stalls: u8,
    /// An answer of a broker or of the database is lost, or its call fails.
    pub(super) losses: u8,
    /// The broker refuses an event for good.
    pub(super) refusals: u8,
}

impl Faults {
    const fn lose_nothing(self) -> bool {
        self.crashes == 0 && self.stalls == 0 && self.losses == 0
    }
}

pub(super) const BUCKET: u8 = 0;
pub(super) const LEASE: Duration = Duration::from_secs(600);
/// Longer than every wait of a scheduler.
pub(super) const TICK: Duration = Duration::from_secs(60);
pub(super) const TICKS: u8 = 10;
/// The events by their numbers, with their keys.
pub(super) const EVENTS: [(i64, &str); 3] = [(1, "a"), (2, "late"), (3, "a")];
const LATE: i64 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Stored {
    pub(super) attempts: u32,
    pub(super) blocked: bool,
}

/// What is under way between a relay and the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Way {
    Publish(Handout<()>),
    RecordTrial(Handout<()>),
    Record(Failure<()>),
    Bury(Failure<()>),
    Delete(Vec<(Place, Uuid)>),
    /// Reported already.
    DeleteLate(Vec<(Place, Uuid)>),
    Polled(Reading, Box<Polled<()>>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Relay {
    pub(super) scheduler: Scheduler<()>,
    /// By its own clock.
    pub(super) now: Duration,
    pub(super) lease_until: Duration,
    pub(super) ways: Vec<Way>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) table: BTreeMap<i64, Stored>,
    pub(super) committed_late: bool,
    pub(super) dead: Vec<i64>,
    /// What has arrived at the broker.
    pub(super) log: Vec<i64>,
    /// Messages that nobody waits for any more.
    pub(super) adrift: Vec<i64>,
    pub(super) owner: usize,
    pub(super) epoch: i64,
    pub(super) relays: [Option<Relay>; 2],
    pub(super) ticks: u8,
    pub(super) left: Faults,
    /// Events that were acked to the owner of their bucket.
    pub(super) acked: Vec<i64>,
    /// One of them was made a dead letter afterwards.
    pub(super) overruled: bool,
}

impl World {
    pub(super) fn owned(&self) -> Owned {
        Owned { bucket: BUCKET, epoch: self.epoch }
    }

    pub(super) fn owns(&self, relay: usize, owned: Owned) -> bool {
        self.owner == relay && self.epoch == owned.epoch
    }
}

fn relay(mistake: Mistake) -> Relay {
    let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(2) };
    let settings = Settings {
        settle: Duration::ZERO,
        wake_least: Duration::ZERO,
        delete_least: Duration::ZERO,
        database: backoff,
        ..Settings::default()
    };
    let rules = Rules { attempts: 3, on_unknown: OnUnknown::Retry, on_exhausted: OnExhausted::Skip };
    let per_key = if mistake == Mistake::WindowOfTwo { 2 } else { 1 };
    let destined = Destined { rules, retry: backoff, breaker: backoff, per_key };
    let scheduler = Scheduler::new(settings, [(Arc::from("broker"), destined)], 1);
    Relay { scheduler, now: Duration::ZERO, lease_until: LEASE, ways: Vec::new() }
}

fn first(log: &[i64], seq: i64) -> Option<usize> {
    log.iter().position(|event| *event == seq)
}

impl Model for Relays {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World {
            table: EVENTS.iter().filter(|(seq, _)| *seq != LATE).map(|(seq, _)| (*seq, Stored::default())).collect(),
            committed_late: !self.late,
            dead: Vec::new(),
            log: Vec::new(),
            adrift: Vec::new(),
            owner: 0,
            epoch: 1,
            relays: [Some(relay(self.mistake)), Some(relay(self.mistake))],
            ticks: 0,
            left: self.faults,
            acked: Vec::new(),
            overruled: false,
        };
        let owned = world.owned();
        for relay in world.relays.iter_mut().flatten() {
            relay.scheduler.lease_until(LEASE);
        }
        if let Some(relay) = &mut world.relays[0] {
            relay.scheduler.own(owned, false);
        }
        driver::proceed(&mut world, 0, self.mistake);
        driver::proceed(&mut world, 1, self.mistake);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions::enabled(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        actions::act(&mut next, action, self.mistake);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no event is lost", |model, world| {
                EVENTS.iter().all(|(seq, _)| {
                    let committed = *seq != LATE || (model.late && world.committed_late);
                    let somewhere =
                        world.table.contains_key(seq) || world.log.contains(seq) || world.dead.contains(seq);
                    !committed || somewhere
                })
            }),
            Property::<Self>::always("events of a key arrive in order", |_, world| {
                let Some(second) = first(&world.log, 3) else { return true };
                world.dead.contains(&1) || first(&world.log, 1).is_some_and(|first| first < second)
            }),
            Property::<Self>::always("what was acked to its owner is no dead letter", |_, world| !world.overruled),
            Property::<Self>::always("without losses nothing arrives twice", |model, world| {
                let once = |seq: &i64| world.log.iter().filter(|event| *event == seq).count() <= 1;
                !model.faults.lose_nothing() || EVENTS.iter().all(|(seq, _)| once(seq))
            }),
            Property::<Self>::always("no event is stuck", |_, world| {
                let mut actions = Vec::new();
                actions::enabled(world, &mut actions);
                !actions.is_empty() || (world.table.is_empty() && world.committed_late)
            }),
        ]
    }
}
