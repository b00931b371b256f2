//! The purger and its settings.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::pace::Pace;
use super::pass::{Bounds, Line, Passed, pass};
use super::table::{Keys, Table};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::db::OutboxDialect;
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::inbox::{Inbox, InboxDialect};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::outbox::Outbox;
use crate::store::Purge;

/// Deletes expired rows of whatever it is given, as long as it runs. See [the module](crate::purge) for what it promises.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// use idempotency::MemoryStore;
/// use idempotency::purge::Purger;
///
/// let store = MemoryStore::new();
/// let purger = Purger::new().keys("keys", store.clone()).interval(Duration::from_secs(30));
/// # let stop = tokio::time::sleep(Duration::from_millis(20));
/// // In a task beside the service; `stop` is ready when the service stops.
/// let done = tokio::spawn(purger.run(stop)).await;
/// # assert_eq!(done.unwrap().rows, 0);
/// # }
/// ```
#[must_use]
pub struct Purger {
    tables: Vec<(&'static str, Arc<dyn Table>)>,
    interval: Duration,
    most: u32,
    goal: Duration,
    limit: Duration,
}

/// What a purger has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// Rows deleted.
    pub rows: u64,
    /// Whether expired rows were left when the time was over.
    pub more: bool,
}

impl Default for Purger {
    fn default() -> Self {
        Self::new()
    }
}

impl Purger {
    /// A purger of nothing yet.
    pub const fn new() -> Self {
        Self { tables: Vec::new(), interval: MINUTE, most: 1_000, goal: GOAL, limit: LIMIT }
    }

    /// The keys of a store. Its figures are labelled with `name`.
    pub fn keys(self, name: &'static str, store: impl Purge) -> Self {
        self.table(name, Arc::new(Keys(store)))
    }

    /// The marks and the counts of failures of an inbox, of all consumers of its tables. One inbox of a database is enough.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub fn inbox<DB: InboxDialect>(self, name: &'static str, inbox: Inbox<DB>) -> Self {
        self.table(name, Arc::new(inbox))
    }

    /// The dead letters of an outbox that are older than its
    /// [`dead_retention`](crate::outbox::OutboxBuilder::dead_retention), and what is left of events that are gone. An outbox with
    /// a running [`Relay`](crate::outbox::relay::Relay) has this done already. Pending, failing and deferred events are never
    /// purged.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub fn outbox<DB: OutboxDialect>(self, name: &'static str, outbox: Outbox<DB>) -> Self {
        self.table(name, Arc::new(outbox))
    }

    /// How often it looks for expired rows: every minute by default, and at most a fifth sooner, so that several purgers do
    /// not stay in step. At least a millisecond.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// The most rows of one batch: 1,000 by default, which is also the most that is taken. Batches begin at 100 and grow as long as one takes
    /// less than 50 ms.
    pub fn batch(mut self, rows: u32) -> Self {
        self.most = rows.clamp(1, MOST);
        self
    }

    /// How long a batch may take before it is given up: 10 s by default. Those after it are smaller.
    pub const fn batch_timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Deletes what has expired now, for at most an interval. What fails in one table keeps no other from being purged.
    ///
    /// # Errors
    /// What went wrong last: [`ErrorKind::Unavailable`] and its kin, [`ErrorKind::Setup`] where tables are missing. Safe to
    /// repeat.
    ///
    /// # Cancel safety
    /// Dropped, the batch under way is done or undone, and nothing stays locked.
    pub async fn purge_once(&self) -> Result<Purged, Error> {
        let passed = pass(&mut self.lines(), self.bounds(), &CancellationToken::new()).await;
        match passed.failed {
            Some(error) => Err(error),
            None => Ok(Purged { rows: passed.purged, more: passed.more }),
        }
    }

    /// Purges until `shutdown` is ready. Then it finishes the batch under way and returns what it has deleted.
    ///
    /// It survives whatever the database does, and goes on when it is back.
    ///
    /// # Cancel safety
    /// Dropped, the batch under way is done or undone, and nothing stays locked.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Purged {
        let stopping = CancellationToken::new();
        let mut lines = self.lines();
        let mut total = Purged::default();
        let mut shutdown = pin!(shutdown);
        while !stopping.is_cancelled() {
            let begun = Instant::now();
            let passed: Passed = {
                let mut pass = pin!(pass(&mut lines, self.bounds(), &stopping));
                tokio::select! {
                    biased;
                    () = &mut shutdown => {
                        stopping.cancel();
                        pass.await
                    }
                    passed = &mut pass => passed,
                }
            };
            total.rows += passed.purged;
            total.more = passed.more;
            // What is left is gone on with at once, also where another table has failed: a pass that leaves something has
            // lasted as long as a rest would.
            if passed.more || stopping.is_cancelled() {
                continue;
            }
            // A table is looked at once an interval, however long the others took; a database that fails is left alone.
            let pause = self.pause();
            let pause = if passed.failed.is_some() { pause } else { pause.saturating_sub(begun.elapsed()) };
            tokio::select! {
                () = &mut shutdown => break,
                () = sleep(pause) => {}
            }
        }
        total
    }

    pub(super) fn table(mut self, name: &'static str, table: Arc<dyn Table>) -> Self {
        self.tables.push((name, table));
        self
    }

    fn lines(&self) -> Vec<Line> {
        let pace = Pace::new(self.most, self.goal);
        self.tables.iter().map(|(name, table)| Line::new(name, Arc::clone(table), pace)).collect()
    }

    fn bounds(&self) -> Bounds {
        let now = Instant::now();
        // More than a runtime's timers can hold is as good as a year.
        Bounds { limit: self.limit, until: now + self.interval.min(YEAR) }
    }

    fn pause(&self) -> Duration {
        self.interval.min(YEAR).mul_f64(rand::random_range(0.8..1.0))
    }
}

impl fmt::Debug for Purger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purger")
            .field("tables", &self.tables.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
/// How long a batch should take.
const GOAL: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(10);
/// Rows of a batch.
const MOST: u32 = 1_000;
