//! The relay's scheduler: what is read, sent, recorded and deleted next. It does nothing by itself: [`Scheduler::step`] says
//! what to do, and what came of it is told to it.

mod action;
mod answers;
mod destination;
mod operators;
mod ownership;
mod reading;
mod refilling;
mod sending;
mod settings;
mod writing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::bucket::Bucket;
use super::{Acked, Caution, Horizon, LaneName, Pace, Place, Window};
use destination::{Destination, Turn};
use writing::Write;

pub use action::{Action, Failure, Handout, Listed, Owned, Part, Poll, Polled, Reading, Refill, Settled, Span};
pub use settings::{Destined, Settings};

/// What a relay has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub struct Counts {
    /// Events that their destinations have acked.
    pub published: u64,
    /// Those among them of which the destination said that it had them already.
    pub duplicates: u64,
    /// Attempts that failed and counted.
    pub failed: u64,
    /// Events that wait for an operator since: blocked or parked.
    pub blocked: u64,
    /// Events moved to the dead letters.
    pub dead: u64,
    /// Events that were out without an answer when the relay stopped, or acked and not deleted: another relay may publish
    /// them again.
    pub left: u64,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            published: self.published + other.published,
            duplicates: self.duplicates + other.duplicates,
            failed: self.failed + other.failed,
            blocked: self.blocked + other.blocked,
            dead: self.dead + other.dead,
            left: self.left + other.left,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scheduler<E> {
    settings: Settings,
    destinations: BTreeMap<Arc<str>, Destination>,
    buckets: BTreeMap<u8, Bucket<E>>,
    acked: Acked<Ack>,
    caution: Caution,
    horizon: Horizon,
    /// The largest number that is known to be drawn.
    newest: i64,
    settled: Settled,
    /// Buckets taken so far.
    owns: u64,
    /// Rows that are due at a time.
    timers: BTreeSet<(Duration, Place)>,
    /// Lanes that may want more rows.
    hungry: VecDeque<Turn>,
    refilling: usize,
    polling: Polling<E>,
    deleting: bool,
    next_deletion: Duration,
    writes: VecDeque<Write<E>>,
    /// Rows whose write is under way.
    writing: BTreeSet<Place>,
    /// Rows that were written while a listing was under way.
    touched: BTreeSet<Place>,
    listing: Pace,
    asking_paused: Pace,
    asking_writers: Pace,
    passing: Pace,
    database: Trouble,
    lease_until: Duration,
    stopping: bool,
    dice: Dice,
}

/// What is remembered of an acked row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ack {
    id: Uuid,
    destination: Arc<str>,
    size: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Polling<E> {
    under_way: bool,
    /// Somebody has committed since the poll under way began.
    poked: bool,
    /// Enough rows are in memory.
    starved: bool,
    next: Duration,
    /// Not before, whoever has committed.
    earliest: Duration,
    rest: Duration,
    /// What was read while rows that appeared late are fetched.
    withheld: Option<Polled<E>>,
    late: Option<(Reading, Vec<Place>)>,
    /// Of events, on average: how many may be read ahead.
    average: usize,
}

impl<E> Polling<E> {
    /// There is something to read.
    const fn poke(&mut self) {
        self.poked = true;
        self.next = self.earliest;
    }
}

/// Errors of the database.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct Trouble {
    failures: u32,
    until: Duration,
}

/// Chance that can be repeated (xorshift64*).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        u32::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32).unwrap_or(u32::MAX)
    }
}

impl<E> Scheduler<E> {
    /// One that owns nothing. `seed`: of its jitter.
    #[must_use]
    pub fn new(settings: Settings, destinations: impl IntoIterator<Item = (Arc<str>, Destined)>, seed: u64) -> Self {
        let window = Window::new(settings.window_events, settings.window_bytes);
        let destinations = destinations
            .into_iter()
            .map(|(name, destined)| (name, Destination::new(destined, window.clone())))
            .collect();
        Self {
            destinations,
            buckets: BTreeMap::new(),
            acked: Acked::default(),
            caution: Caution::new(settings.window_events),
            horizon: Horizon::new(settings.settle),
            newest: 0,
            settled: Settled::default(),
            owns: 0,
            timers: BTreeSet::new(),
            hungry: VecDeque::new(),
            refilling: 0,
            polling: Polling {
                under_way: false,
                poked: false,
                starved: false,
                next: Duration::ZERO,
                earliest: Duration::ZERO,
                rest: settings.poll_least,
                withheld: None,
                late: None,
                average: 1_024,
            },
            deleting: false,
            next_deletion: Duration::ZERO,
            writes: VecDeque::new(),
            writing: BTreeSet::new(),
            touched: BTreeSet::new(),
            listing: Pace::new(settings.look, 10),
            asking_paused: Pace::new(settings.look, 10),
            asking_writers: Pace::new(settings.look / 4, 10),
            passing: Pace::new(FULL_PASS_REST, 100),
            database: Trouble::default(),
            lease_until: Duration::ZERO,
            stopping: false,
            dice: Dice(seed | 1),
            settings,
        }
    }

    /// What to do now. `now`: since the relay began; never goes back.
    #[must_use]
    pub fn step(&mut self, now: Duration) -> Vec<Action<E>> {
        let mut actions = Vec::new();
        if !self.stopping {
            self.catch_up(now);
            self.send(now, &mut actions);
        }
        if now >= self.database.until {
            self.write(now, &mut actions);
            if !self.stopping {
                self.read(now, &mut actions);
            }
        }
        actions
    }

    /// When there may be something to do, if nothing is told before. Asked after the step of that moment: what was due and was
    /// not done then waits for something else than time.
    #[must_use]
    pub fn wake_at(&self, now: Duration) -> Duration {
        let breakers = self.destinations.values().filter_map(|destination| destination.breaker.opens_at());
        let paces = [&self.listing, &self.asking_paused, &self.asking_writers, &self.passing];
        let paces = paces.into_iter().filter_map(Pace::due);
        let timers = self.timers.first().map(|(at, _)| *at);
        let polling = (!self.polling.under_way && !self.polling.starved).then_some(self.polling.next);
        let reading = timers.into_iter().chain(polling).filter(|_| !self.stopping);
        let deletion = (!self.deleting && self.acked.waiting() > 0).then_some(self.next_deletion);
        // Whatever needs the database waits for it.
        let database = |at: Duration| at.max(self.database.until);
        let later = paces.map(database).chain(breakers).filter(|at| *at > now);
        let next = reading.chain(deletion).map(database).chain(later).min();
        next.unwrap_or(Duration::MAX).max(now + LEAST_SLEEP)
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts_of_each().fold(Counts::default(), |sum, (_, counts)| sum.and(counts))
    }

    /// The same of each destination.
    pub fn counts_of_each(&self) -> impl Iterator<Item = (&Arc<str>, Counts)> {
        self.destinations.iter().map(|(name, destination)| {
            (name, Counts { left: destination.window.events() as u64, ..destination.counts })
        })
    }

    fn count(&mut self, destination: &str, count: impl FnOnce(&mut Counts)) {
        if let Some(destination) = self.destinations.get_mut(destination) {
            count(&mut destination.counts);
        }
    }

    /// Whether nothing is out, and nothing left to be deleted or recorded.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.destinations.values().all(|destination| destination.window.events() == 0)
            && self.acked.undeleted() == 0
            && self.writes.is_empty()
            && self.writing.is_empty()
    }

    /// Nothing more is read or sent from now on.
    pub const fn stop(&mut self) {
        self.stopping = true;
    }

    /// Somebody has committed events.
    pub const fn poke(&mut self) {
        self.polling.poke();
        self.polling.rest = self.settings.poll_least;
    }

    /// A call of the database has failed: all wait a while.
    fn database_failed(&mut self, now: Duration) {
        if now >= self.database.until {
            self.database.failures = self.database.failures.saturating_add(1);
            let roll = self.dice.roll();
            // Never at once.
            let wait = self.settings.database.wait(self.database.failures, roll).max(self.settings.database.base / 4);
            self.database.until = now + wait;
        }
    }

    const fn database_works(&mut self) {
        self.database.failures = 0;
    }

    fn bucket(&mut self, owned: Owned) -> Option<&mut Bucket<E>> {
        self.buckets.get_mut(&owned.bucket).filter(|bucket| bucket.epoch == owned.epoch)
    }

    /// A lane may have something to send, or to read.
    fn wake(&mut self, bucket: u8, lane: &LaneName, window: usize) {
        let Some(owner) = self.buckets.get_mut(&bucket) else { return };
        let (mut ready, mut hungry) = (false, false);
        owner.lane(lane, |lane, _| {
            hungry = lane.wants_refill().is_some();
            ready = !lane.queued && lane.next(window).is_some();
            lane.queued |= ready;
        });
        let turn = || Turn { bucket, lane: lane.clone() };
        if hungry {
            self.hungry.push_back(turn());
        }
        if ready && let Some(destination) = self.destinations.get_mut(lane.destination()) {
            destination.ready.push_back(turn());
        }
    }

    fn wake_lane(&mut self, bucket: u8, lane: &LaneName) {
        if let Some(destination) = self.destinations.get(lane.destination()) {
            self.wake(bucket, lane, destination.destined.per_key);
        }
    }
}

/// A full pass rests at least so long; else a hundred times its duration (M37).
const FULL_PASS_REST: Duration = Duration::from_secs(30);
const LEAST_SLEEP: Duration = Duration::from_millis(1);
