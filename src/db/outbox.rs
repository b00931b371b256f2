//! The seam between the outbox with its relay and the engines that keep it. What follows from what is read is decided in
//! `outbox`, for all engines alike.
//!
//! The table of pending events is only ever inserted into and deleted from (M22, M23). Whatever changes stands in other
//! tables: failing events, deferred ones, members, buckets, pauses, dead letters.
#![allow(unnameable_types, reason = "parts of the sealed trait `OutboxDialect`")]

pub(crate) mod columns;
pub(crate) mod scan;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use sqlx::{Database, Pool};
use uuid::Uuid;

use super::Dialect;
use super::lease::Answer;
use crate::error::Error;
use crate::outbox::{Bucket, DeadLetter, DeadLetters, Event, FailingEvent, PendingEvent, Place, Stats, TraceContext};
use crate::purge::Batch;

/// A database engine that can keep an outbox. Sealed: implemented for the engines of this crate.
pub trait OutboxDialect: Dialect {
    /// How events get into the caller's transaction.
    #[doc(hidden)]
    type Rows: Rows<Engine = Self> + Clone;
    /// The engine's outbox, for relays and operators.
    #[doc(hidden)]
    type Queue: Queue<Engine = Self>;
}

/// The statements that run on the caller's connection: they need no pool, only to know where the tables are.
pub trait Rows: Sized + Send + Sync + 'static {
    /// Whose transactions carry them.
    type Engine: Database;

    /// For tables in this schema, or where the connection's own settings lead. `persistent`: whether statements may stay
    /// prepared on the connection.
    fn named(schema: Option<&str>, persistent: bool) -> Result<Self, Error>;

    /// Inserts events in the order of the slice, in one statement: one round trip once it is prepared. Either all are
    /// inserted or the statement fails.
    fn insert(
        &self,
        connection: &mut <Self::Engine as Database>::Connection,
        events: &[NewEvent<'_>],
    ) -> impl Answer<()>;

    /// The same for events that wait until [`NewEvent::due`] outside the table of pending ones (M40).
    fn defer(
        &self,
        connection: &mut <Self::Engine as Database>::Connection,
        events: &[NewEvent<'_>],
    ) -> impl Answer<()>;

    /// Whether an insertion failed because the id is there already. Told by SQLSTATE or errno (case B17).
    fn is_duplicate(error: &sqlx::Error) -> bool;

    /// The first pending events that this connection sees, by bucket and number: for tests of applications.
    fn pending(
        &self,
        connection: &mut <Self::Engine as Database>::Connection,
        most: u32,
    ) -> impl Answer<Vec<PendingEvent>>;
}

/// Relays' and operators' side. Every call is one transaction of its own, none waits for a producer's open transaction
/// (M38), and each is safe to repeat where its answer was lost, unless it says otherwise.
///
/// **Fences.** What only the owner of a bucket may say carries a [`Fence`] and changes nothing where that fence is not the
/// bucket's current one. Deleting acked events is not fenced: an ack is final whoever holds it (M32).
pub trait Queue: scan::Scan + Sized + Send + Sync + 'static {
    /// Whose tables they are.
    type Engine: OutboxDialect;

    /// Looks at the database. `schema`: where the tables are, for engines that have schemas.
    fn open(pool: Pool<Self::Engine>, schema: Option<&str>) -> impl Future<Output = Result<Self, Error>> + Send;

    /// How events get into the same tables.
    fn rows(&self) -> <Self::Engine as OutboxDialect>::Rows;

    /// Brings the tables to the newest version.
    fn migrate(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// What an error of one of these statements means.
    fn error(error: sqlx::Error) -> Error;

    // Who relays (M33, M39).

    /// The first beat of an incarnation. It takes over the name of an earlier one, whose buckets are free then.
    fn join(&self, member: &Member, lease: Duration) -> impl Answer<Beat>;

    /// Says that the member lives, for so long from now by the server's clock, and asks who else does.
    fn beat(&self, member: &Member, lease: Duration) -> impl Answer<Beat>;

    /// Takes at most `most` buckets that nobody owns, or whose owner lives no more. Each gets a larger epoch. A bucket that
    /// somebody else is taking at this moment is stepped over.
    fn take(&self, member: &Member, most: u32) -> impl Answer<Vec<Taken>>;

    /// Gives buckets up in order: they are not taken carefully. Those that are not the member's any more stay as they are.
    fn release(&self, fences: &[Fence]) -> impl Answer<()>;

    /// Gives everything up and leaves. Its buckets are free at once.
    fn leave(&self, member: &Member) -> impl Answer<()>;

    /// For a relay that is dropped and cannot leave: lets go of what only the end of the process would free (SQLite's lock).
    /// What it owned is free when its lease ends, and is taken carefully.
    fn vanish(&self, member: &Member) {
        let _ = member;
    }

    // Pending events.

    /// Of each bucket the first events beyond a number, in one statement; in order within a bucket (M36). Its cost does not
    /// depend on what stands before those numbers. A large `most` with large events is a lot of memory.
    fn poll(&self, from: &[From]) -> impl Answer<Vec<PendingEvent>>;

    /// One pending event.
    fn read(&self, place: Place) -> impl Answer<Option<PendingEvent>>;

    /// Deletes acked events, in one statement, and what was recorded of their failures. Not fenced, safe to repeat.
    fn delete(&self, acked: &[Acked]) -> impl Answer<()>;

    // Failing events.

    /// The failing events of these buckets, blocked ones included. A relay reads them when it takes a bucket, and again now
    /// and then: operators change them.
    fn failing(&self, buckets: &[Bucket]) -> impl Answer<Vec<Failing>>;

    /// Records an attempt at a pending event, before it is made or after it has failed (M34, M35). Returns the number of
    /// attempts that count. `None`: the bucket has another owner, or the event is not pending, and nothing was recorded. Not safe to repeat:
    /// it counts.
    fn record(&self, fence: &Fence, attempt: &Attempt<'_>) -> impl Answer<Option<u32>>;

    /// Moves a pending event to the dead letters. `false`: the bucket has another owner, or the event is not there any more.
    fn park(&self, fence: &Fence, place: Place, id: Uuid, cause: &Cause<'_>) -> impl Answer<bool>;

    /// Moves at most so many events that have become due into the table of pending ones, the longest due first. Any relay
    /// may; two at once share the work. Returns how many.
    fn promote(&self, most: u32) -> impl Answer<u64>;

    /// What is paused.
    fn paused(&self) -> impl Answer<Vec<Pause>>;

    // Operators.

    /// Pauses, or resumes. Safe to repeat.
    fn set_paused(&self, pause: &Pause, paused: bool) -> impl Answer<()>;

    /// Counts, each exact up to [`Stats::MOST`].
    fn stats(&self) -> impl Answer<Stats>;

    /// Failing events of all buckets, blocked ones first, the oldest first.
    fn list_failing(&self, most: u32) -> impl Answer<Vec<FailingEvent>>;

    /// Has a failing event published at once, as if it had not failed; it keeps its place. `false`: none fails by this id.
    fn redrive_failing(&self, id: Uuid) -> impl Answer<bool>;

    /// Deletes a failing event, so that its key goes on. `false`: none fails by this id.
    fn discard_failing(&self, id: Uuid) -> impl Answer<bool>;

    /// Dead letters, the oldest first.
    fn dead(&self, which: &DeadLetters, most: u32) -> impl Answer<Vec<DeadLetter>>;

    /// How many there are, counting no further than `most`.
    fn count_dead(&self, which: &DeadLetters, most: u32) -> impl Answer<u64>;

    /// Moves dead letters back into the table of pending events, the oldest first, each to the end of its key. The id stays,
    /// the number of redrives grows. Returns how many.
    fn redrive_dead(&self, which: &DeadLetters, most: u32) -> impl Answer<u64>;

    /// Deletes dead letters, the oldest first. Returns how many.
    fn discard_dead(&self, which: &DeadLetters, most: u32) -> impl Answer<u64>;

    /// How the server goes about a poll of all buckets and the deletion of many events, a line a step: for tests of the texts.
    #[cfg(feature = "testing")]
    fn plans(&self) -> impl Answer<[Vec<String>; 2]>;

    /// Deletes at most so many dead letters that are older than this, and what is left of members long gone. Returns the
    /// number of dead letters.
    fn purge(&self, older_than: Duration, most: u32) -> impl Answer<u64>;

    /// The same as one batch of a purger, under its lock.
    fn purge_batch(&self, older_than: Duration, most: u32) -> impl Answer<Batch>;
}

/// An event with what is decided when it is enqueued.
#[derive(Debug)]
pub struct NewEvent<'a> {
    /// Its own, or drawn.
    pub id: Uuid,
    /// By destination and key.
    pub bucket: Bucket,
    /// The event.
    pub event: &'a Event,
    /// Its payload in its stored form.
    pub payload: Bytes,
    /// Its header fields in their stored form; `None` without any.
    pub headers: Option<String>,
    /// Its own trace, or the current one.
    pub trace: Option<TraceContext>,
    /// When it is due, in microseconds since 1970, where it is deferred.
    pub due: Option<i64>,
}

/// A relay that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, which may outlive its process. At most 255 bytes.
    pub name: String,
    /// Its incarnation: drawn anew at every start.
    pub token: Uuid,
}

/// What a beat learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// It takes part.
    Member {
        /// The names of all live members, itself included, in the order of their bytes.
        members: Vec<String>,
        /// The buckets that it owns. What it thought it owned and is not among them is lost; what it did not know of is a
        /// [`Queue::take`] whose answer was lost.
        holdings: Vec<Taken>,
    },
    /// Somebody else relays for the whole database; ask again (SQLite).
    StandBy,
    /// A later process has taken its name: it owns nothing and must stop.
    Ousted,
}

/// The right to speak for a bucket: worth something as long as nobody else has taken the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Which bucket.
    pub bucket: Bucket,
    /// Larger for each later owner.
    pub epoch: i64,
    /// The owner's token.
    pub owner: Uuid,
}

/// A bucket that is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The owner's right.
    pub fence: Fence,
    /// Whether the owner before has vanished without giving it up: what is pending may have killed it (M34).
    pub vanished: bool,
}

/// Where a poll goes on in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct From {
    /// Which bucket.
    pub bucket: Bucket,
    /// Events beyond this number; 0 for all.
    pub after: i64,
    /// At most so many.
    pub most: u32,
}

/// An event that its destination has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Its row.
    pub place: Place,
    /// Compared too: a restored database may give a number twice.
    pub id: Uuid,
}

/// What is recorded of an event whose attempts have failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Its row.
    pub place: Place,
    /// Its id.
    pub id: Uuid,
    /// Its destination.
    pub destination: String,
    /// Its key: as long as it fails, it is the head of that key.
    pub key: Option<String>,
    /// Attempts that count.
    pub attempts: u32,
    /// Whether it waits for an operator.
    pub blocked: bool,
    /// How long until it may be tried again; zero where it may at once.
    pub retry_in: Duration,
    /// How often an operator has had it published anew while it was failing. Included in
    /// [`PendingEvent::redrives`].
    pub redrives: u32,
}

/// An attempt to record.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The event.
    pub event: &'a PendingEvent,
    /// Added to the attempts that count: 1, 0 for one that does not, -1 to take back one recorded before it was made.
    pub count: i32,
    /// When it may be tried again.
    pub retry_in: Duration,
    /// Whether it waits for an operator from now on (M35).
    pub blocked: bool,
    /// What the publisher said. Cut to 1,000 bytes; must hold nothing secret.
    pub error: &'a str,
}

/// Why an event is a dead letter.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a> {
    /// Attempts that counted.
    pub attempts: u32,
    /// What the publisher said. Cut to 1,000 bytes; must hold nothing secret.
    pub error: &'a str,
}

/// A destination, or one key of it, whose events wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pause {
    /// The destination.
    pub destination: String,
    /// One key; `None` for all events of the destination.
    pub key: Option<String>,
}
