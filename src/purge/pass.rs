//! One way through all tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

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
    /// Nothing is left, or somebody else sees to it.
    Rest,
    Failed(Error),
}

impl Line {
    async fn batch(&mut self, limit: Duration, passed: &mut Passed) -> Next {
        let (asked, begun) = (self.pace.size(), Instant::now());
        let answer = timeout(limit, self.table.batch(asked)).await;
        let took = begun.elapsed();
        match answer {
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
/// for the next pass.
///
/// # Cancel safety
/// Dropped, the batch under way is done or undone.
pub(super) async fn pass(lines: &mut [Line], bounds: Bounds, stopping: &AtomicBool) -> Passed {
    let mut passed = Passed::default();
    let mut open: Vec<usize> = (0..lines.len()).collect();
    loop {
        let mut left = Vec::new();
        for number in open {
            if stopping.load(Ordering::Relaxed) {
                return passed;
            }
            match lines[number].batch(bounds.limit, &mut passed).await {
                Next::More(took) => {
                    left.push(number);
                    // So at most half of one connection's time is a purge's.
                    sleep(took).await;
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
    }
}
