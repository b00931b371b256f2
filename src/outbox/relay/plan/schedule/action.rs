//! What the scheduler asks for, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::{LaneName, Note, Place, Row};

/// A bucket as its owner knows it: what was asked for an epoch that has passed is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owned {
    /// Its number.
    pub bucket: u8,
    /// The owner's.
    pub epoch: i64,
}

/// Something to do. Each is answered by one call of the scheduler, in any order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action<E> {
    /// Publish an event: [`Scheduler::answered`](super::Scheduler::answered).
    Publish(Handout<E>),
    /// Record an attempt that is about to be made: [`Scheduler::recorded_trial`](super::Scheduler::recorded_trial).
    RecordTrial(Handout<E>),
    /// Record what has failed: [`Scheduler::recorded`](super::Scheduler::recorded).
    Record(Failure<E>),
    /// Move an event to the dead letters: [`Scheduler::buried`](super::Scheduler::buried).
    Bury(Failure<E>),
    /// Delete acked rows: [`Scheduler::deleted`](super::Scheduler::deleted).
    Delete(Vec<(Place, Uuid)>),
    /// Read the table: [`Scheduler::polled`](super::Scheduler::polled).
    Poll(Poll),
    /// Read rows that appeared late: [`Scheduler::late`](super::Scheduler::late).
    Late(Reading, Vec<Place>),
    /// Read rows that are due again: [`Scheduler::due`](super::Scheduler::due).
    Due(Reading, Vec<Place>),
    /// Read more of a lane: [`Scheduler::refilled`](super::Scheduler::refilled).
    Refill(Refill),
    /// Read what has failed in these buckets: [`Scheduler::listed`](super::Scheduler::listed).
    List(Reading, Vec<Owned>),
    /// Ask what is paused: [`Scheduler::paused`](super::Scheduler::paused).
    Paused,
    /// Ask who may still commit rows up to these numbers: [`Scheduler::writers`](super::Scheduler::writers).
    Writers {
        /// These.
        spans: Vec<Span>,
        /// The largest number that was known by then.
        newest: i64,
        /// When it was asked.
        asked: Duration,
        /// How many buckets had been taken.
        owns: u64,
    },
}

/// The number of a reading, see [`Acked`](super::super::Acked).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Reading(pub u64);

/// An event handed out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handout<E> {
    /// Whose it is.
    pub owned: Owned,
    /// The event.
    pub row: Arc<Row<E>>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Whether this one is recorded beforehand.
    pub trial: bool,
    /// When, for the answer.
    pub sent: Duration,
    /// What the destination had acked by then.
    pub acks: u64,
}

/// A failure to record.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Failure<E> {
    /// Whose it is.
    pub owned: Owned,
    /// The event.
    pub row: Arc<Row<E>>,
    /// Failed attempts, this one included if it counts.
    pub attempts: u32,
    /// What that adds to those on record: -1 where one was recorded beforehand that does not count.
    pub count: i32,
    /// From now. `None`: it waits for an operator.
    pub retry_in: Option<Duration>,
    /// When it is tried again.
    pub again: Option<Duration>,
    /// What the publisher said.
    pub error: Arc<str>,
}

impl<E> Clone for Failure<E> {
    fn clone(&self) -> Self {
        Self { row: Arc::clone(&self.row), error: Arc::clone(&self.error), ..*self }
    }
}

/// Numbers of a bucket: beyond the first, up to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Span {
    /// Whose.
    pub owned: Owned,
    /// Beyond this one.
    pub after: i64,
    /// Up to this one.
    pub upto: i64,
}

/// How far to read a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Part {
    /// Whose.
    pub owned: Owned,
    /// Beyond this number.
    pub after: i64,
    /// At most so many rows.
    pub most: u32,
}

/// Up to this number nothing can appear any more in the buckets that were taken by then. What has appeared before may still have
/// to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Settled {
    /// The number.
    pub seq: i64,
    /// How many buckets had been taken.
    pub owns: u64,
}

/// One reading of the table. The order is what makes it safe (M31): first the last number that was drawn, then the new rows, in
/// one snapshot, then the numbers of what is there in the spans.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Poll {
    /// Its number.
    pub reading: Reading,
    /// The new rows.
    pub parts: Vec<Part>,
    /// Where rows may have appeared late.
    pub spans: Vec<Span>,
    /// Whether the last number drawn is asked for.
    pub newest: bool,
    /// Parts of a full pass, read like new rows.
    pub passes: Vec<Part>,
    /// What was settled before the reading began.
    pub settled: Settled,
    /// This number was drawn before the reading began.
    pub known: i64,
}

/// What it has brought.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Polled<E> {
    /// What was asked.
    pub poll: Poll,
    /// The last number drawn before, where it was asked for and can be told.
    pub newest: Option<i64>,
    /// By bucket and number.
    pub rows: Vec<Row<E>>,
    /// Of the full pass.
    pub passed: Vec<Row<E>>,
    /// What is in the spans.
    pub present: Vec<Place>,
}

/// More of a lane: its rows from a number on, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refill {
    /// Its number.
    pub reading: Reading,
    /// Whose.
    pub owned: Owned,
    /// Which.
    pub lane: LaneName,
    /// The first number.
    pub from: i64,
    /// At most so many.
    pub most: u32,
}

/// What the table says of a failing row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Its place.
    pub place: Place,
    /// The rest.
    pub note: Note,
}
