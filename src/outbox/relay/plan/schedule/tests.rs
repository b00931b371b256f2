//! Several schedulers over a table and a log that do what real ones do: transactions that commit late, statements whose
//! answers come late or never, processes that die or stall, messages that arrive after they were given up.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::type_complexity,
    reason = "small numbers of a simulation"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::{Backoff, OnExhausted, OnUnknown, Place, Reply, Row, Rules};
use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
const BUCKETS: u8 = 3;
const KEYS: u32 = 6;

/// A key, or an event alone, and which of its events.
type Told = (u32, u32);

#[derive(Clone, Debug)]
struct Stored {
    id: Uuid,
    told: Told,
}

#[derive(Debug)]
struct Writer {
    name: String,
    key: u32,
    rows: Vec<(Place, Stored)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    attempts: u32,
    blocked: bool,
    again: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    owner: Option<usize>,
    epoch: i64,
    vanished: bool,
}

type Tell = Box<dyn FnOnce(&mut Scheduler<Told>, Duration) -> Option<Action<Told>>>;

/// What is under way between a relay and the others.
enum Way {
    Asked(Action<Told>),
    Polling {
        poll: Poll,
        stage: u8,
        newest: Option<i64>,
        rows: Vec<Row<Told>>,
        passed: Vec<Row<Told>>,
        present: Vec<Place>,
    },
    Told(Tell),
}

struct Relay {
    number: usize,
    scheduler: Scheduler<Told>,
    began: Duration,
    ways: Vec<Way>,
    stalled: u32,
}

struct Trouble {
    late_commits: bool,
    kills: bool,
    stalls: bool,
    database: bool,
    refusals: u32,
    per_key: usize,
    /// Whether answers are lost, and destinations away.
    outages: bool,
    lease: Duration,
}

struct World {
    dice: Dice,
    now: Duration,
    seq: i64,
    table: BTreeMap<Place, Stored>,
    failing: BTreeMap<Place, Failed>,
    slices: BTreeMap<u8, Slice>,
    leases: BTreeMap<usize, Duration>,
    writers: Vec<Writer>,
    writer: u64,
    /// Per key, what was committed, in order.
    committed: BTreeMap<u32, Vec<u32>>,
    drawn: BTreeMap<u32, u32>,
    log: Vec<Told>,
    /// Messages that nobody waits for any more.
    adrift: Vec<Told>,
    relays: Vec<Relay>,
    relay: usize,
    trouble: Trouble,
    ending: bool,
}

fn settings(trouble: &Trouble) -> (Settings, Destined) {
    let backoff = Backoff { base: ms(5), cap: ms(40) };
    let settings = Settings {
        window_events: 6,
        window_bytes: 1_000,
        ahead: 24,
        lane: 3,
        kept: 2,
        poll_least: ms(2),
        wake_least: ms(2),
        poll_idle: ms(20),
        delete_least: ms(4),
        look: ms(20),
        settle: Duration::ZERO,
        database: backoff,
    };
    let rules = Rules { attempts: 1_000, on_unknown: OnUnknown::Retry, on_exhausted: OnExhausted::Block };
    (settings, Destined { rules, retry: backoff, breaker: backoff, per_key: trouble.per_key })
}

impl World {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let mut world = Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            now: Duration::ZERO,
            seq: 0,
            table: BTreeMap::new(),
            failing: BTreeMap::new(),
            slices: (0..BUCKETS).map(|bucket| (bucket, Slice::default())).collect(),
            leases: BTreeMap::new(),
            writers: Vec::new(),
            writer: 0,
            committed: BTreeMap::new(),
            drawn: BTreeMap::new(),
            log: Vec::new(),
            adrift: Vec::new(),
            relays: Vec::new(),
            relay: 0,
            trouble,
            ending: false,
        };
        for _ in 0..3 {
            world.start();
        }
        world
    }

    fn below(&mut self, most: u32) -> u32 {
        self.dice.roll() % most
    }

    fn pick(&mut self, most: usize) -> usize {
        self.dice.roll() as usize % most
    }

    fn start(&mut self) {
        let (settings, destined) = settings(&self.trouble);
        let seed = u64::from(self.dice.roll());
        let scheduler = Scheduler::new(settings, [(Arc::from("broker"), destined)], seed);
        let number = self.relay;
        self.relay += 1;
        self.relays.push(Relay { number, scheduler, began: self.now, ways: Vec::new(), stalled: 0 });
    }

    fn write(&mut self) {
        let open = self.writers.len();
        match self.below(3) {
            0 if open < 4 && !self.ending => {
                // Writers of a key take its lock first.
                let key = if self.below(4) == 0 { 1_000 + u32::try_from(self.seq).unwrap() } else { self.below(KEYS) };
                if self.writers.iter().any(|writer| writer.key == key) {
                    return;
                }
                self.writer += 1;
                let mut writer = Writer { name: format!("writer-{}", self.writer), key, rows: Vec::new() };
                for _ in 0..=self.below(2) {
                    self.seq += 1;
                    let number = self.drawn.entry(key).or_default();
                    *number += 1;
                    let bucket = u8::try_from(key % u32::from(BUCKETS)).unwrap();
                    let stored =
                        Stored { id: Uuid::from_u128(u128::try_from(self.seq).unwrap()), told: (key, *number) };
                    writer.rows.push((Place { bucket, seq: self.seq }, stored));
                    if key >= 1_000 {
                        break;
                    }
                }
                self.writers.push(writer);
                if !self.trouble.late_commits {
                    self.commit(open);
                }
            }
            1 if open > 0 => {
                let which = self.pick(open);
                if self.below(5) == 0 && !self.ending {
                    let writer = self.writers.swap_remove(which);
                    *self.drawn.entry(writer.key).or_default() -= u32::try_from(writer.rows.len()).unwrap();
                } else {
                    self.commit(which);
                }
            }
            _ => {}
        }
    }

    fn commit(&mut self, which: usize) {
        let writer = self.writers.swap_remove(which);
        for (place, stored) in writer.rows {
            self.committed.entry(writer.key).or_default().push(stored.told.1);
            self.table.insert(place, stored);
        }
    }

    fn beat(&mut self, which: usize) {
        let now = self.now;
        let relay = &mut self.relays[which];
        let number = relay.number;
        self.leases.insert(number, now + self.trouble.lease);
        relay.scheduler.lease_until(now + self.trouble.lease - relay.began);
        // What is somebody else's now.
        for owned in relay.scheduler.owned() {
            let slice = self.slices[&owned.bucket];
            if slice.owner != Some(number) || slice.epoch != owned.epoch {
                relay.scheduler.lose(owned);
            }
        }
        for owned in relay.scheduler.drained() {
            let slice = self.slices.get_mut(&owned.bucket).unwrap();
            if slice.owner == Some(number) && slice.epoch == owned.epoch {
                *slice = Slice { owner: None, vanished: false, ..*slice };
            }
        }
        let live = self.leases.values().filter(|until| **until > now).count();
        let held = relay.scheduler.held();
        let share = usize::from(BUCKETS).div_ceil(live);
        if held.len() > share {
            relay.scheduler.drain(held[0]);
        } else if held.len() < share {
            let free = self.slices.iter_mut().find(|(_, slice)| {
                slice.owner.is_none_or(|owner| self.leases.get(&owner).is_none_or(|until| *until <= now))
            });
            if let Some((bucket, slice)) = free {
                *slice = Slice { owner: Some(number), epoch: slice.epoch + 1, vanished: slice.owner.is_some() };
                relay.scheduler.own(Owned { bucket: *bucket, epoch: slice.epoch }, slice.vanished);
            }
        }
    }

    fn rows(&self, part: &Part) -> Vec<Row<Told>> {
        let range =
            Place { bucket: part.owned.bucket, seq: part.after + 1 }..Place { bucket: part.owned.bucket + 1, seq: 0 };
        self.table.range(range).take(part.most as usize).map(|(place, stored)| row(*place, stored)).collect()
    }

    fn owns(&self, number: usize, owned: Owned) -> bool {
        let slice = self.slices[&owned.bucket];
        slice.owner == Some(number) && slice.epoch == owned.epoch
    }

    /// One thing under way goes on.
    fn go_on(&mut self, which: usize) {
        let ways = self.relays[which].ways.len();
        if ways == 0 {
            return;
        }
        let at = self.pick(ways);
        let way = self.relays[which].ways.swap_remove(at);
        let number = self.relays[which].number;
        let fails = self.trouble.database && !self.ending && self.below(20) == 0;
        let next = match way {
            Way::Told(tell) => {
                let relay = &mut self.relays[which];
                let now = self.now - relay.began;
                if let Some(action) = tell(&mut relay.scheduler, now) {
                    relay.ways.push(Way::Asked(action));
                }
                return;
            }
            Way::Asked(Action::Poll(poll)) => {
                Way::Polling { poll, stage: 0, newest: None, rows: vec![], passed: vec![], present: vec![] }
            }
            Way::Polling { poll, stage, newest, mut rows, mut passed, mut present } => {
                let newest = if stage == 0 { poll.newest.then_some(self.seq) } else { newest };
                match stage {
                    0 => {}
                    1 => rows = poll.parts.iter().flat_map(|part| self.rows(part)).collect(),
                    2 => passed = poll.passes.iter().flat_map(|part| self.rows(part)).collect(),
                    3 => {
                        for span in &poll.spans {
                            let bucket = span.owned.bucket;
                            let range = Place { bucket, seq: span.after + 1 }..=Place { bucket, seq: span.upto };
                            present.extend(self.table.range(range).map(|(place, _)| *place));
                        }
                    }
                    _ => {
                        let reading = poll.reading;
                        let polled = (!fails).then_some(Polled { poll, newest, rows, passed, present });
                        self.tell(which, move |scheduler, now| scheduler.polled(reading, polled, now));
                        return;
                    }
                }
                Way::Polling { poll, stage: stage + 1, newest, rows, passed, present }
            }
            Way::Asked(action) => {
                self.act(which, number, action, fails);
                return;
            }
        };
        self.relays[which].ways.push(next);
    }

    fn tell(&mut self, which: usize, tell: impl FnOnce(&mut Scheduler<Told>, Duration) + 'static) {
        let tell = |scheduler: &mut Scheduler<Told>, now: Duration| {
            tell(scheduler, now);
            None
        };
        self.relays[which].ways.push(Way::Told(Box::new(tell)));
    }

    fn act(&mut self, which: usize, number: usize, action: Action<Told>, fails: bool) {
        // A statement that fails may have been done.
        let done = !fails || self.below(2) == 0;
        let now = self.now;
        match action {
            Action::Poll(_) => {}
            Action::Publish(handout) => {
                let told = handout.row.event;
                let roll = if self.ending { 100 } else { self.below(100) };
                let roll = if self.trouble.outages { roll } else { roll.max(14) };
                let (arrives, reply) = match roll {
                    0..4 => (false, Reply::Unavailable { retry_after: None }),
                    4..8 => (false, Reply::Unknown),
                    8..12 => (true, Reply::Unknown),
                    12..14 => {
                        self.adrift.push(told);
                        (false, Reply::Unknown)
                    }
                    roll if roll < 14 + self.trouble.refusals => (false, Reply::Refused { permanent: false }),
                    _ => (true, Reply::Acked),
                };
                if arrives {
                    self.log.push(told);
                }
                self.tell(which, move |scheduler, now| {
                    scheduler.answered(&handout, reply, false, &Arc::from("no"), now);
                });
            }
            Action::RecordTrial(handout) => {
                let (owned, place) = (handout.owned, handout.row.place);
                let there = self.owns(number, owned) && self.table.contains_key(&place);
                if there && done {
                    self.failing.entry(place).or_default().attempts += 1;
                }
                let recorded = (!fails).then_some(there);
                let tell = move |scheduler: &mut Scheduler<Told>, now: Duration| {
                    scheduler.recorded_trial(handout, recorded, now)
                };
                self.relays[which].ways.push(Way::Told(Box::new(tell)));
            }
            Action::Record(failure) => {
                let place = failure.row.place;
                let there = self.owns(number, failure.owned) && self.table.contains_key(&place);
                if there && done {
                    let failed = self.failing.entry(place).or_default();
                    failed.attempts = failed.attempts.saturating_add_signed(failure.count);
                    failed.blocked = failure.retry_in.is_none();
                    failed.again = now + failure.retry_in.unwrap_or_default();
                }
                self.tell(which, move |scheduler, now| scheduler.recorded(failure, (!fails).then_some(there), now));
            }
            Action::Bury(failure) => panic!("{:?} is buried", failure.row),
            Action::Delete(batch) => {
                if done {
                    for (place, id) in &batch {
                        if self.table.get(place).is_some_and(|stored| stored.id == *id) {
                            self.table.remove(place);
                            self.failing.remove(place);
                        }
                    }
                }
                self.tell(which, move |scheduler, now| scheduler.deleted(&batch, !fails, now));
            }
            Action::Late(reading, places) => {
                let rows = (!fails).then(|| self.read(&places));
                self.tell(which, move |scheduler, now| scheduler.late(reading, rows, now));
            }
            Action::Due(reading, places) => {
                let rows = (!fails).then(|| self.read(&places));
                self.tell(which, move |scheduler, now| scheduler.due(reading, &places, rows, now));
            }
            Action::Refill(refill) => {
                let all = Part { owned: refill.owned, after: refill.from - 1, most: u32::MAX };
                let rows = self.rows(&all).into_iter().filter(|row| row.lane() == refill.lane);
                let rows = (!fails).then(|| rows.take(refill.most as usize).collect());
                self.tell(which, move |scheduler, now| scheduler.refilled(&refill, rows, now));
            }
            Action::List(reading, owned) => {
                let began = self.relays[which].began;
                let buckets: BTreeSet<u8> = owned.iter().map(|owned| owned.bucket).collect();
                let listed = self.failing.iter().filter(|(place, _)| buckets.contains(&place.bucket));
                let listed = listed.map(|(place, failed)| Listed {
                    place: *place,
                    note: super::super::Note {
                        id: self.table[place].id,
                        attempts: failed.attempts,
                        again: (!failed.blocked).then_some(failed.again.saturating_sub(began)),
                    },
                });
                let listed = (!fails).then(|| listed.collect());
                self.tell(which, move |scheduler, now| scheduler.listed(reading, &owned, listed, now));
            }
            Action::Paused => self.tell(which, |scheduler, now| scheduler.paused(Some(vec![]), now)),
            Action::Writers { newest, asked, owns, .. } => {
                let writers = self.writers.iter().map(|writer| writer.name.clone()).collect();
                let writers = (!fails).then_some(writers);
                self.tell(which, move |scheduler, now| scheduler.writers((newest, asked, owns), writers, now));
            }
        }
    }

    fn read(&self, places: &[Place]) -> Vec<Row<Told>> {
        places.iter().filter_map(|place| Some(row(*place, self.table.get(place)?))).collect()
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(self.dice.roll().into()) / 4_000_000;
        let which = self.pick(self.relays.len());
        if self.relays[which].stalled > 0 {
            self.relays[which].stalled -= 1;
            self.now += ms(1);
            return;
        }
        match self.below(100) {
            0..20 => self.write(),
            20..30 => self.beat(which),
            30..60 => {
                let relay = &mut self.relays[which];
                let actions = relay.scheduler.step(self.now - relay.began);
                relay.ways.extend(actions.into_iter().map(Way::Asked));
            }
            60..98 => self.go_on(which),
            98 if self.trouble.kills && !self.ending && self.below(20) == 0 => {
                let dead = self.relays.swap_remove(which);
                // What it had sent may arrive.
                let sent = dead.ways.into_iter().filter_map(|way| match way {
                    Way::Asked(Action::Publish(handout)) => Some(handout.row.event),
                    _ => None,
                });
                self.adrift.extend(sent);
                self.start();
            }
            _ if self.trouble.stalls && !self.ending && self.below(20) == 0 => self.relays[which].stalled = 300,
            _ => {
                if !self.adrift.is_empty() {
                    let at = self.pick(self.adrift.len());
                    let told = self.adrift.swap_remove(at);
                    if self.below(2) == 0 {
                        self.log.push(told);
                    }
                }
            }
        }
    }

    /// Runs, lets everything come to an end, and compares the log with what was committed.
    fn judge(mut self, steps: u32) -> Result<Self, String> {
        for _ in 0..steps {
            self.step();
        }
        self.ending = true;
        self.relays.iter_mut().for_each(|relay| relay.stalled = 0);
        for left in 0.. {
            self.step();
            if self.writers.is_empty() && self.table.is_empty() {
                break;
            }
            if left > 40_000 {
                let stuck: Vec<_> = self.table.iter().take(3).collect();
                let owners: Vec<_> = self.slices.iter().collect();
                return Err(format!("{} rows are left: {stuck:?} {owners:?}", self.table.len()));
            }
        }
        let mut seen = BTreeSet::new();
        let mut first: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for told in &self.log {
            if seen.insert(*told) {
                first.entry(told.0).or_default().push(told.1);
            }
        }
        if first != self.committed {
            let key = self.committed.iter().find(|(key, told)| first.get(key) != Some(told));
            return Err(format!("committed {key:?}, in the log {:?}", key.and_then(|(key, _)| first.get(key))));
        }
        Ok(self)
    }
}

fn row(place: Place, stored: &Stored) -> Row<Told> {
    let (key, _) = stored.told;
    let key = (key < 1_000).then(|| Arc::from(key.to_string()));
    Row { place, id: stored.id, destination: Arc::from("broker"), key, size: 10, event: stored.told }
}

const ALL: Trouble = Trouble {
    late_commits: true,
    kills: true,
    stalls: true,
    database: true,
    refusals: 10,
    per_key: 1,
    outages: true,
    lease: ms(100),
};

fn run(seeds: std::ops::Range<u64>, trouble: impl Fn() -> Trouble) -> Vec<(u64, String)> {
    seeds.filter_map(|seed| World::new(seed, trouble()).judge(3_000).err().map(|error| (seed, error))).collect()
}

fn seeds() -> std::ops::Range<u64> {
    0..150
}

// M31, M32, M33, M34, M36, M37
#[test]
fn whatever_happens_the_order_holds_and_nothing_is_lost() {
    let wrong = run(seeds(), || ALL);
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

// M30: nothing but commits out of order.
#[test]
fn late_commits_alone_change_nothing() {
    let quiet = || Trouble { kills: false, stalls: false, database: false, refusals: 0, ..ALL };
    let wrong = run(0..80, quiet);
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

// M32, case B21: where nothing dies and no answer is lost, each event is published once, however late a statement shows a
// row that is deleted meanwhile.
#[test]
fn without_losses_nothing_is_published_twice() {
    let calm = || Trouble {
        kills: false,
        stalls: false,
        database: false,
        outages: false,
        lease: ms(1_000_000),
        refusals: 20,
        ..ALL
    };
    let twice = |seed| match World::new(seed, calm()).judge(3_000) {
        Err(error) => Some(error),
        Ok(world) => {
            let events: usize = world.committed.values().map(Vec::len).sum();
            (world.log.len() != events).then(|| format!("seed {seed}: {} copies of {events} events", world.log.len()))
        }
    };
    let wrong: Vec<String> = (0..300).filter_map(twice).collect();
    assert!(wrong.is_empty(), "{} wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

// M32: what makes the order is that one event of a key is out. With four of them the same worlds go wrong.
#[test]
fn a_window_of_four_in_a_key_breaks_the_order() {
    let wrong = run(0..40, || Trouble { per_key: 4, ..ALL });
    assert!(!wrong.is_empty());
}

/// Whether a scheduler that does these things reads the table: which poll.
fn polls(actions: Vec<Action<Told>>) -> Option<Poll> {
    actions.into_iter().find_map(|action| if let Action::Poll(poll) = action { Some(poll) } else { None })
}

/// A scheduler that was told 1 ms after its start what has failed in its bucket.
fn with_a_bucket() -> Scheduler<Told> {
    let (settings, destined) = settings(&ALL);
    let mut scheduler = Scheduler::new(settings, [(Arc::from("broker"), destined)], 1);
    scheduler.lease_until(ms(1_000));
    scheduler.own(Owned { bucket: 0, epoch: 1 }, false);
    let actions = scheduler.step(ms(0));
    for action in &actions {
        if let Action::List(reading, owned) = action {
            scheduler.listed(*reading, owned, Some(vec![]), ms(1));
        }
    }
    assert!(polls(actions).is_none(), "before it is told");
    scheduler
}

// M33, M36: whoever takes a bucket reads it as soon as it knows what has failed in it.
#[test]
fn a_bucket_is_read_at_once_when_it_is_taken() {
    assert!(polls(with_a_bucket().step(ms(1))).is_some());
}

// M41: whoever commits alone has its event read at once; those who commit beside each other do not pay for a poll each.
#[test]
fn polls_rest_between_commits() {
    let mut scheduler = with_a_bucket();
    let nothing = |scheduler: &mut Scheduler<Told>, poll: Poll, at| {
        let polled = Polled { poll, newest: None, rows: vec![], present: vec![], passed: vec![] };
        scheduler.polled(polled.poll.reading, Some(polled), ms(at));
    };
    let first = polls(scheduler.step(ms(1))).unwrap();
    scheduler.poke();
    nothing(&mut scheduler, first, 2);
    scheduler.poke();
    assert!(polls(scheduler.step(ms(3))).is_none(), "it rests");
    assert_eq!(scheduler.wake_at(ms(3)), ms(4));
    let second = polls(scheduler.step(ms(4))).unwrap();
    nothing(&mut scheduler, second, 5);
    assert!(polls(scheduler.step(ms(8))).is_none(), "nobody has committed");
    scheduler.poke();
    assert!(polls(scheduler.step(ms(8))).is_some(), "it has rested");
}

// M32: a deletion is a commit beside the writers'.
#[test]
fn deletions_rest_unless_many_wait_for_one() {
    let (settings, destined) = settings(&ALL);
    let settings = Settings { window_events: 12, poll_idle: ms(1_000), look: ms(1_000), ..settings };
    let mut scheduler: Scheduler<Told> = Scheduler::new(settings, [(Arc::from("broker"), destined)], 1);
    let acked = |scheduler: &mut Scheduler<Told>, seq| {
        let ack = super::Ack { id: Uuid::nil(), destination: "broker".into(), size: 1 };
        scheduler.acked.acked(Place { bucket: 0, seq }, ack);
    };
    let deletes = |scheduler: &mut Scheduler<Told>, at| {
        deletion(scheduler, at).map_or(0, |batch| {
            scheduler.deleted(&batch, true, ms(at + 1));
            batch.len()
        })
    };
    acked(&mut scheduler, 1);
    assert_eq!(deletes(&mut scheduler, 10), 1);
    acked(&mut scheduler, 2);
    acked(&mut scheduler, 3);
    assert_eq!(deletes(&mut scheduler, 11), 0, "it rests");
    assert_eq!(scheduler.wake_at(ms(11)), ms(14));
    assert_eq!(deletes(&mut scheduler, 14), 2);
    (4..7).for_each(|seq| acked(&mut scheduler, seq));
    assert_eq!(deletes(&mut scheduler, 15), 3, "a quarter of the window");
    let large = super::Ack { id: Uuid::nil(), destination: "broker".into(), size: 250 };
    scheduler.acked.acked(Place { bucket: 0, seq: 8 }, large);
    assert_eq!(deletes(&mut scheduler, 16), 1, "a quarter of its bytes");
    // M34: what is on record as begun is blamed for a crash before its deletion.
    let at = Place { bucket: 0, seq: 9 };
    let row = Arc::new(row(at, &Stored { id: Uuid::nil(), told: (1, 1) }));
    let owned = Owned { bucket: 0, epoch: 1 };
    let trial = Handout { owned, row, attempts: 0, trial: true, sent: ms(15), acks: 0 };
    scheduler.answered(&trial, Reply::Acked, false, &"".into(), ms(17));
    assert_eq!(deletes(&mut scheduler, 17), 1, "a trial's deletion waits for nothing");
    (10..13).for_each(|seq| acked(&mut scheduler, seq));
    let batch = deletion(&mut scheduler, 17).unwrap();
    (13..16).for_each(|seq| acked(&mut scheduler, seq));
    assert_eq!(deletion(&mut scheduler, 18), None, "one at a time");
    scheduler.deleted(&batch, true, ms(18));
    assert_eq!(deletes(&mut scheduler, 18), 3);
    acked(&mut scheduler, 7);
    assert_eq!(deletes(&mut scheduler, 19), 0, "it rests");
    scheduler.stop();
    assert_eq!(deletes(&mut scheduler, 19), 1, "nothing is waited for at the end");
}

/// The only event of bucket 0, as the owner of this epoch sends it.
fn sent(scheduler: &mut Scheduler<Told>, epoch: i64) -> Option<Handout<Told>> {
    scheduler.own(Owned { bucket: 0, epoch }, false);
    for action in scheduler.step(ms(0)) {
        if let Action::List(reading, owned) = action {
            scheduler.listed(reading, &owned, Some(vec![]), ms(0));
        }
    }
    let stored = Stored { id: Uuid::nil(), told: (1, 1) };
    scheduler.admit(row(Place { bucket: 0, seq: 1 }, &stored), ms(0));
    scheduler.step(ms(0)).into_iter().find_map(|action| match action {
        Action::Publish(handout) => Some(handout),
        _ => None,
    })
}

fn deletion(scheduler: &mut Scheduler<Told>, at: u64) -> Option<Vec<(Place, Uuid)>> {
    scheduler.step(ms(at)).into_iter().find_map(|action| match action {
        Action::Delete(batch) => Some(batch),
        _ => None,
    })
}

// M33, M40: whoever takes a bucket over finds nothing in it that was acked.
#[test]
fn a_bucket_is_given_up_when_what_was_acked_is_deleted() {
    let (settings, destined) = settings(&ALL);
    let mut scheduler: Scheduler<Told> = Scheduler::new(settings, [(Arc::from("broker"), destined)], 1);
    scheduler.lease_until(ms(10_000));
    let handout = sent(&mut scheduler, 1).unwrap();
    scheduler.drain_all();
    assert!(scheduler.drained().is_empty(), "it is out");
    scheduler.answered(&handout, Reply::Acked, false, &"".into(), ms(1));
    assert!(scheduler.drained().is_empty(), "it rests");
    let batch = deletion(&mut scheduler, 100).unwrap();
    assert!(scheduler.drained().is_empty(), "it is being deleted");
    assert_eq!(deletion(&mut scheduler, 200), None, "once");
    scheduler.deleted(&batch, false, ms(201));
    assert!(scheduler.drained().is_empty(), "it is not deleted");
    let batch = deletion(&mut scheduler, 300).unwrap();
    scheduler.deleted(&batch, true, ms(301));
    assert_eq!(scheduler.drained(), [handout.owned]);
}

// M32, M33: a bucket that was lost and taken again, while an event of it was out: it is acked twice, and has entered the window
// twice.
#[test]
fn an_event_that_is_acked_twice_leaves_the_window_twice() {
    let (settings, destined) = settings(&ALL);
    // The second ack comes while the first one waits for its deletion, while it is deleted, or while it is still remembered.
    for second in 0..3 {
        let mut scheduler: Scheduler<Told> = Scheduler::new(settings, [(Arc::from("broker"), destined)], 1);
        scheduler.lease_until(ms(10_000));
        let old = sent(&mut scheduler, 1).unwrap();
        scheduler.lose(old.owned);
        let new = sent(&mut scheduler, 3).unwrap();
        let ack = |scheduler: &mut Scheduler<Told>, handout: &Handout<Told>| {
            scheduler.answered(handout, Reply::Acked, false, &"".into(), ms(1));
        };
        assert!(scheduler.polling.under_way, "a statement that may show the row still");
        ack(&mut scheduler, &new);
        if second == 0 {
            ack(&mut scheduler, &old);
        }
        let batch = deletion(&mut scheduler, 100).unwrap();
        if second == 1 {
            ack(&mut scheduler, &old);
        }
        scheduler.deleted(&batch, true, ms(101));
        if second == 2 {
            ack(&mut scheduler, &old);
        }
        assert!(scheduler.is_quiet(), "{second}: {:?}", scheduler.counts());
        assert_eq!(scheduler.counts().left, 0, "{second}");
    }
}

// M41: nothing is due, so nothing is done until it is.
#[test]
fn an_idle_relay_sleeps() {
    let (settings, destined) = settings(&ALL);
    let settings = Settings { poll_idle: ms(1_000), look: ms(1_000), ..settings };
    let mut scheduler: Scheduler<Told> = Scheduler::new(settings, [(Arc::from("broker"), destined)], 1);
    scheduler.lease_until(ms(1_000_000));
    let mut now = ms(0);
    // Without a bucket, and with one.
    for bucket in [false, true] {
        if bucket {
            scheduler.own(Owned { bucket: 0, epoch: 1 }, false);
        }
        let (began, mut steps) = (now, 0);
        while now < began + ms(100_000) {
            for action in scheduler.step(now) {
                match action {
                    Action::Poll(poll) => {
                        let reading = poll.reading;
                        let polled = Polled { poll, newest: Some(7), rows: vec![], passed: vec![], present: vec![] };
                        scheduler.polled(reading, Some(polled), now);
                    }
                    Action::List(reading, owned) => scheduler.listed(reading, &owned, Some(vec![]), now),
                    Action::Paused => scheduler.paused(Some(vec![]), now),
                    Action::Writers { newest, asked, owns, .. } => {
                        scheduler.writers((newest, asked, owns), Some(vec![]), now);
                    }
                    other => panic!("{other:?}"),
                }
            }
            now = scheduler.wake_at(now);
            steps += 1;
        }
        assert!(steps < 500, "{bucket}: {steps} steps in 100 s");
        scheduler.destinations.values_mut().for_each(|destination| {
            destination.breaker.failed(now, now, None, 1);
        });
    }
}
