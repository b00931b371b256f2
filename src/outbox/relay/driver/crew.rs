//! The tasks of a relay: they end with it.

use std::future::Future;

use tokio::task::JoinSet;

use super::told::Told;

/// Tasks whose results are told one by one. Dropped, they are aborted: what a publisher had under way is then unknown, and what
/// the database had is done or undone, as its calls promise.
pub(super) struct Crew(JoinSet<Told>);

impl Crew {
    pub(super) fn new() -> Self {
        Self(JoinSet::new())
    }

    /// Has something done. A task of its own, so that many are done at once and a slow one holds nobody up.
    pub(super) fn perform(&mut self, work: impl Future<Output = Told> + Send + 'static) {
        self.0.spawn(work);
    }

    /// The next result.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Told> {
        while let Some(done) = self.0.join_next().await {
            // Publishers' panics are caught before; others are the runtime's end.
            if let Ok(told) = done {
                return Some(told);
            }
        }
        None
    }

    /// A result that is there already.
    pub(super) fn try_next(&mut self) -> Option<Told> {
        while let Some(done) = self.0.try_join_next() {
            if let Ok(told) = done {
                return Some(told);
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
