//! One way through all tables.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Batch;
use super::pace::Pace;
use super::table::Table;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit_error};
use crate::series;

/// A table, under the name that its figures are labelled with, and how large its batches are.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) table: Arc<dyn Table>,
    pub(super) pace: Pace,
    /// How often in this pass somebody else was found at work.
    met: u32,
}

/// What came of the tables in one way through.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) purged: u64,
    /// What failed last.
    pub(super) failed: Option<Error>,
    /// Whether something is left that had expired.
    pub(super) more: bool,
}

/// How a pass goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Of one batch.
    pub(super) limit: Duration,
    /// Of all together.
    pub(super) until: Instant,
}

/// How a table stands after a batch.
enum Next {
    /// The batch was full, and took so long.
    More(Duration),
    /// Somebody else is at work, maybe on other tables: ask again after so long.
    Busy(Duration),
    /// Nothing is left, or somebody else sees to it.
    Rest,
    Failed(Error),
}

impl Line {
    pub(super) fn new(name: &'static str, table: Arc<dyn Table>, pace: Pace) -> Self {
        Self { name, table, pace, met: 0 }
    }

    async fn batch(&mut self, limit: Duration, passed: &mut Passed) -> Next {
        let (asked, begun) = (self.pace.size(), Instant::now());
        let answer = timeout(limit, self.table.batch(asked)).await;
        let took = begun.elapsed();
        match answer {
            Ok(Ok(Batch::Busy)) if self.met < ASKED_AGAIN => {
                self.met += 1;
                Next::Busy(FIRST_WAIT.mul_f64(f64::from(1_u32 << self.met) * rand::random_range(0.5..1.0)))
            }
            Ok(Ok(Batch::Busy)) => Next::Rest,
            Ok(Ok(Batch::Done { purged, overdue })) => {
                self.pace.done(purged, took);
                passed.purged += purged;
                let full = purged >= asked.into();
                series::purged(self.name, purged);
                series::purge_lag(self.name, if full { overdue } else { Duration::ZERO });
                if full { Next::More(took) } else { Next::Rest }
            }
            Ok(Err(error)) => self.failed(error),
            Err(_) => self.failed(Error::with_source(ErrorKind::Unavailable, "a batch of a purge took too long")),
        }
    }

    fn failed(&mut self, error: Error) -> Next {
        self.pace.failed();
        emit_error(Event::PurgeFailed, &error);
        Next::Failed(error)
    }
}

/// A batch of each table in turn, until nothing has expired, the time is over, or `stopping` says so. A table that fails is left
/// for the next pass. One purger that catches up has the lock half of the time, for tables that another one may not have: so that
/// one asks some times again.
///
/// # Cancel safety
/// Dropped, the batch under way is done or undone.
pub(super) async fn pass(lines: &mut [Line], bounds: Bounds, stopping: &CancellationToken) -> Passed {
    let mut passed = Passed::default();
    let mut open: Vec<usize> = (0..lines.len()).collect();
    lines.iter_mut().for_each(|line| line.met = 0);
    let mut again = false;
    loop {
        let mut left = Vec::new();
        for number in open {
            if stopping.is_cancelled() {
                passed.more = again || !left.is_empty();
                return passed;
            }
            match lines[number].batch(bounds.limit, &mut passed).await {
                // So at most half of one connection's time is a purge's.
                Next::More(pause) | Next::Busy(pause) => {
                    left.push(number);
                    tokio::select! {
                        biased;
                        () = stopping.cancelled() => {
                            passed.more = true;
                            return passed;
                        }
                        () = sleep(pause) => {}
                    }
                }
                Next::Rest => {}
                Next::Failed(error) => passed.failed = Some(error),
            }
        }
        if left.is_empty() || Instant::now() >= bounds.until {
            passed.more = !left.is_empty();
            return passed;
        }
        open = left;
        again = true;
    }
}

/// How often a table is asked again while somebody else has the lock, and half of the first wait; each is twice the one before.
const ASKED_AGAIN: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(10);
