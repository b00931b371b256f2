//! What operators do with a key whose story did not end by itself (S8).

use std::fmt;
use std::future::Future;
use std::time::Duration;

use http::StatusCode;

use super::{Fence, Kept, KeyStats, Store, Token};
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::State;
use crate::scope::ScopeId;

/// Calls for operators: to look at a key, and to end what ended without a settlement.
///
/// Every change names an [`Entry`] that was read before, and compares its token: what has moved on meanwhile is left
/// alone. Nothing here takes a key from an attempt that is alive; such a key is [`Operated::InProgress`]. Each change
/// is an event `operator_…` in logs and counters.
pub trait Operate: Store {
    /// The live records under this key: of one endpoint, or of all.
    ///
    /// # Errors
    /// As for a claim. [`ErrorKind::Setup`] where the store must be told the endpoint.
    ///
    /// # Cancel safety
    /// It only reads.
    fn find(
        &self,
        scope: &ScopeId,
        key: &Key,
        endpoint: Option<&Endpoint>,
    ) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// At most `limit` records that wait for somebody: lapsed, unknown and orphaned ones, and those that have been
    /// running for `older_than` or longer, by the store's clock. The oldest first.
    ///
    /// # Errors
    /// As for a claim.
    ///
    /// # Cancel safety
    /// It only reads.
    fn list_stuck(&self, older_than: Duration, limit: u32) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// Frees a key that is lapsed, unknown or orphaned: the next request with it runs, as the next attempt. For
    /// operations of which it is known that they were not done.
    ///
    /// # Errors
    /// As for a claim. Safe to repeat.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    fn release(&self, entry: &Entry) -> impl Future<Output = Result<Operated, Error>> + Send;

    /// Stores the answer of a key that is lapsed, unknown or orphaned: later requests with it get this answer. For
    /// operations of which it is known what became of them.
    ///
    /// # Errors
    /// As for a claim. Safe to repeat.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    fn settle_as(&self, entry: &Entry, kept: Kept) -> impl Future<Output = Result<Operated, Error>> + Send;

    /// Deletes a record that nobody runs, a completed one too: the key is new again. One that has been completed since it was
    /// seen is [`Operated::Changed`]: who decided about a stopped attempt has not decided about its answer.
    ///
    /// # Errors
    /// As for a claim. Safe to repeat.
    ///
    /// # Cancel safety
    /// Dropped, it is done or undone.
    fn forget(&self, entry: &Entry) -> impl Future<Output = Result<Operated, Error>> + Send;

    /// How the records stand. Each count reads at most `most` rows and says what it is worth: see [`Count`](super::Count)
    /// and [`KeyStats::MOST`]. With `u64::MAX` everything is counted, which **reads the whole table**: minutes of a large
    /// one, though it locks nothing that anybody waits for. On Redis all names of the servers are walked, those of others
    /// too, and unless everything is wanted at most a million of each.
    ///
    /// # Errors
    /// As for a claim. [`ErrorKind::Setup`] where the store cannot count.
    ///
    /// # Cancel safety
    /// It changes nothing.
    fn stats(&self, most: u64) -> impl Future<Output = Result<KeyStats, Error>> + Send {
        let _ = most;
        std::future::ready(Err(Error::with_source(ErrorKind::Setup, "this store cannot count")))
    }
}

/// What became of an operator's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operated {
    /// As asked.
    Done,
    /// An attempt is running: nothing was changed.
    InProgress,
    /// The record is not what the entry showed, or gone, or in a state that this call is not for: look again.
    Changed,
}

/// A record as operators see it. It shows no body; key and scope are in [`Entry::lookup`], not in `Debug`.
#[derive(Clone)]
#[non_exhaustive]
pub struct Entry {
    /// Under what it is kept.
    pub lookup: LookupKey,
    /// Where it stands.
    pub state: State,
    /// Which attempt was the last one, counted from 1.
    pub attempt: u64,
    /// The last attempt's fence, for leases.
    pub fence: Option<Fence>,
    /// How long ago the operation was accepted, by the store's clock.
    pub age: Duration,
    /// How long the record is still kept.
    pub expires_in: Duration,
    /// How long the lease still lasts, where one is running.
    pub lease_left: Option<Duration>,
    /// The stored answer's status.
    pub status: Option<StatusCode>,
    /// The last step that a handler has recorded.
    pub step: Option<String>,
    /// Who runs it, where the store can tell.
    pub holder: Option<Holder>,
    /// The claim that the record belongs to: compared by every change. `None` where there is no record to change yet,
    /// but a session that holds the key.
    pub token: Option<Token>,
}

/// The database session that holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The server process, as the database numbers it.
    pub pid: i64,
    /// How long its transaction has been open. Zero where this role may not see it: on Postgres another role's sessions are
    /// shown to members of `pg_read_all_stats` alone.
    pub open_for: Duration,
    /// The client's address, where it has one and this role may see it.
    pub client: Option<String>,
    /// By the server's clock: tells its transaction from a later one of the same session.
    #[cfg(feature = "postgres")]
    pub(crate) begun: i64,
}

impl Entry {
    /// A record in this state, of a first attempt, for stores of your own; the rest is set field by field.
    #[must_use]
    pub fn new(lookup: LookupKey, state: State, token: Token) -> Self {
        Self { token: Some(token), ..Self::held(lookup, state) }
    }

    /// A key that is held by a session, without a record that could be read.
    #[must_use]
    pub fn held(lookup: LookupKey, state: State) -> Self {
        Self {
            lookup,
            state,
            attempt: 1,
            fence: None,
            age: Duration::ZERO,
            expires_in: Duration::ZERO,
            lease_left: None,
            status: None,
            step: None,
            holder: None,
            token: None,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("lookup", &self.lookup)
            .field("state", &self.state)
            .field("attempt", &self.attempt)
            .field("fence", &self.fence)
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}
