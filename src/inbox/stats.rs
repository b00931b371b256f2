//! How an inbox stands, for operators.

use std::time::Duration;

use super::{Inbox, InboxDialect};
use crate::db::inbox::{Rows, Stood};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::store::Count;
#[cfg(doc)]
use crate::store::KeyStats;

/// How the marks of all consumers stand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxStats {
    /// Messages that were processed, those included whose retention has ended and that are not purged yet.
    pub marks: Count,
    /// Those that wait for a purge.
    pub expired: Count,
    /// For how long the longest of them has waited.
    pub overdue: Option<Duration>,
    /// Messages that have failed and whose failures are counted.
    pub failing: Count,
    /// Consumers that have marks, in the order of bytes, at most [`InboxStats::MOST_CONSUMERS`].
    pub consumers: Vec<ConsumerStats>,
}

impl InboxStats {
    /// More consumers than that are not told.
    pub const MOST_CONSUMERS: usize = 100;
}

/// The marks of one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Its name, as it is stored: one of more than 255 bytes as its digest.
    pub name: Vec<u8>,
    /// Its marks.
    pub marks: Count,
}

impl<DB: InboxDialect> Inbox<DB> {
    /// How the marks of **all** consumers stand. Each count reads at most `most` rows and says what it is worth: see
    /// [`Count`]; [`KeyStats::MOST`] is a good one. With `u64::MAX` everything is counted, which reads the whole table twice. There
    /// are a statement and two more for each consumer.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] and its kin. Safe to repeat.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn stats(&self, most: u64) -> Result<InboxStats, Error> {
        let rows = &self.shared.rows;
        let Stood { marks, failing } = rows.stats(most).await.map_err(DB::Inbox::error)?;
        let mut consumers: Vec<ConsumerStats> = Vec::new();
        while consumers.len() < InboxStats::MOST_CONSUMERS {
            // No consumer has an empty name.
            let last = consumers.last().map_or(&[][..], |consumer| &consumer.name);
            match rows.consumer(last, most).await.map_err(DB::Inbox::error)? {
                Some((name, marks)) => consumers.push(ConsumerStats { name, marks }),
                None => break,
            }
        }
        Ok(InboxStats { marks: marks.rows, expired: marks.expired, overdue: marks.overdue, failing, consumers })
    }
}
