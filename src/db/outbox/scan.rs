//! What a relay asks the table beyond polls, so that its positions are no danger (M31, M36, M37).

use std::time::Duration;

use super::super::lease::Answer;
use super::{Attempt, Fence};
use crate::outbox::{Bucket, PendingEvent, Place};

/// Looks at the table of pending events. Each call is one statement, or reads only; none waits for a producer.
pub trait Scan {
    /// A number is drawn so long at most before whoever drew it can be seen by [`Scan::writers`].
    const SETTLES: Duration = Duration::ZERO;

    /// The rows that are committed and have such numbers; no payloads.
    fn present(&self, spans: &[Span]) -> impl Answer<Vec<Place>>;

    /// Names for whatever may still commit a row with such a number: as long as one of them is told, its rows may appear.
    /// Names of later writers may be among them.
    fn writers(&self, spans: &[Span]) -> impl Answer<Vec<String>>;

    /// The largest number that was drawn so far, where that can be told cheaply.
    fn newest(&self) -> impl Answer<Option<i64>>;

    /// These rows, as far as they are there; in any order.
    fn read_all(&self, places: &[Place]) -> impl Answer<Vec<PendingEvent>>;

    /// Records an attempt at each of these events before it is made, as [`Queue::record`](super::Queue::record) does for one. Tells
    /// of each whether it was recorded; after an error some may be.
    fn begin_attempts(&self, events: &[(Fence, &PendingEvent)]) -> impl Answer<Vec<bool>>;

    /// The rows of one key from a number on, in order.
    fn lane(&self, lane: &Lane<'_>) -> impl Answer<Vec<PendingEvent>>;
}

/// Numbers of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which bucket.
    pub bucket: Bucket,
    /// Beyond this number.
    pub after: i64,
    /// Up to this number.
    pub upto: i64,
}

/// Rows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane<'a> {
    /// Where they are.
    pub bucket: Bucket,
    /// Their destination.
    pub destination: &'a str,
    /// Their key.
    pub key: &'a str,
    /// The first number.
    pub from: i64,
    /// At most so many.
    pub most: u32,
}

/// An attempt that counts, until it is known how it ends.
pub(crate) const fn begun(event: &PendingEvent) -> Attempt<'_> {
    Attempt { event, count: 1, retry_in: Duration::ZERO, blocked: false, error: "no end of this attempt is known" }
}
