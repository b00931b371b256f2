//! The seam between the inbox and the engines that keep its marks. What follows from what is met is decided in
//! `src/inbox`, for all engines alike.
#![allow(unnameable_types, reason = "parts of the sealed trait `InboxDialect`")]

use std::fmt;
use std::future::Future;
use std::time::Duration;

use sqlx::{Database, Pool, Transaction};

use super::Dialect;
use super::lease::Answer;
use super::stats::Kept;
use crate::error::Error;
use crate::inbox::{MessageId, Part, PayloadDigest};
use crate::purge::Batch;
use crate::store::{Count, Isolation};

/// A database engine that can keep the marks of an inbox. Sealed: implemented for the engines of this crate.
pub trait InboxDialect: Dialect {
    /// The engine's tables of marks and failures.
    #[doc(hidden)]
    type Inbox: Rows<Engine = Self>;
}

/// What opens a table.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the tables are, for engines that have schemas.
    pub schema: Option<String>,
    /// Of the transactions that are begun here; `None`: the engine's usual.
    pub isolation: Option<Isolation>,
    /// After how long without a statement the server ends a transaction.
    pub idle: Option<Duration>,
    /// Works as on MySQL, also on MariaDB.
    pub like_mysql: bool,
}

/// Which message of which consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(crate) consumer: Part,
    pub(crate) id: MessageId,
}

impl Identity {
    /// The three parts, as they are stored.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [self.consumer.as_bytes(), self.id.source().as_bytes(), self.id.id().as_bytes()]
    }
}

/// A mark to be made.
#[derive(Clone, Debug)]
pub struct New {
    /// Its row.
    pub own: Own,
    /// Of the message's payload.
    pub digest: Option<PayloadDigest>,
}

/// A mark by its owner's random name.
#[derive(Clone, Debug)]
pub struct Own {
    /// Of which message.
    pub identity: Identity,
    /// The name.
    pub token: [u8; 16],
    /// How long it is kept, from processing.
    pub retention: Duration,
    /// Where its row was written, where the engine says so. Good for one change.
    pub place: Option<String>,
}

/// The marks as JSON, for engines that take no arrays: of each the hexadecimal digits of source, id, token and digest.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn as_json<'a>(marks: impl IntoIterator<Item = &'a New>) -> String {
    use super::sql::Hex;
    let mut json = String::from("[");
    for New { own, digest } in marks {
        let [_, source, id] = own.identity.parts();
        let digest =
            digest.map_or_else(|| "null".to_owned(), |digest| format!("\"{}\"", Hex::new(digest.as_bytes()).as_str()));
        let [source, id, token] = [source, id, &own.token].map(Hex::new);
        let (source, id, token) = (source.as_str(), id.as_str(), token.as_str());
        let comma = if json.len() > 1 { "," } else { "" };
        json += &format!("{comma}[\"{source}\",\"{id}\",\"{token}\",{digest}]");
    }
    json + "]"
}

/// What an attempt to make a mark has met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// Nothing: the mark is made, in this transaction, at this place of its table, where the engine says so.
    Nothing(Option<String>),
    /// One that is committed, or made by this transaction before, with the digest of its payload.
    Mark(Option<Vec<u8>>),
    /// Somebody else is making it, or has made it a moment ago.
    Rival,
}

/// Whose transaction it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Begun by [`Rows::lend`], with nothing in it yet.
    Own,
    /// The caller's, and surely one that may write (SQLite).
    Writers,
    /// The caller's.
    Callers,
}

/// The tables. No call waits for a rival's mark, save on SQLite, where a rival is waited for in [`Rows::lend`].
pub trait Rows: Sized + Send + Sync + 'static {
    /// Whose tables.
    type Engine: Dialect;

    /// What goes with a transaction that is begun here until it has ended.
    type Session: Clone + Send + Sync + 'static;

    /// Looks at the database.
    fn open(pool: Pool<Self::Engine>, settings: Settings) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Brings the tables to the newest version.
    fn migrate(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// What an error of one of these statements means.
    fn error(error: sqlx::Error) -> Error;

    /// Begins a transaction for a handler. Dropping the future leaves nothing begun.
    fn lend(&self) -> impl Future<Output = Result<Lent<Self>, Error>> + Send;

    /// Makes marks, of distinct messages, and tells of each what it has met, in their order. After
    /// [`TransactionLost`](crate::ErrorKind::TransactionLost) the transaction can write no more.
    fn accept(
        &self,
        connection: &mut <Self::Engine as Database>::Connection,
        marks: &[New],
        whose: Whose,
    ) -> impl Future<Output = Result<Vec<Met>, Error>> + Send;

    /// The digest of a mark that is committed, looked for outside of any transaction. `None` where there is none, or where
    /// it cannot be looked for in one step and without a trace.
    fn peek(&self, identity: &Identity) -> impl Answer<Option<Option<Vec<u8>>>>;

    /// Takes a mark back within its transaction.
    fn retract(&self, connection: &mut <Self::Engine as Database>::Connection, own: &Own) -> impl Answer<()>;

    /// In a caller's transaction: whether the mark is still there, and counts its retention from now. Where it is not, the
    /// transaction can write no more, if the engine can see to that.
    fn confirm(&self, connection: &mut <Self::Engine as Database>::Connection, own: &Own) -> impl Answer<bool>;

    /// How often the message has failed, as seen by this transaction.
    fn failures(
        &self,
        connection: &mut <Self::Engine as Database>::Connection,
        identity: &Identity,
    ) -> impl Answer<u64>;

    /// Confirms the mark and commits. The transaction comes back where it has not been committed and is still worth
    /// rolling back.
    fn commit(&self, lent: Lent<Self>, own: &Own) -> impl Future<Output = Result<(), Uncommitted<Self>>> + Send;

    /// Rolls back, and then counts a failure on the same connection, if there is one to count.
    fn undo(&self, lent: Lent<Self>, failed: Option<&Own>) -> impl Answer<()>;

    /// Rolls back without waiting for it.
    fn discard(&self, lent: Lent<Self>);

    /// Counts a failure, in a transaction of its own.
    fn count_failure(&self, identity: &Identity, retention: Duration) -> impl Answer<()>;

    /// Forgets the failures of a message.
    fn forget_failures(&self, identity: &Identity) -> impl Answer<()>;

    /// Counts, each no further than this.
    fn stats(&self, most: u64) -> impl Answer<Stood>;

    /// The consumer with marks that follows this one in the order of bytes, and their number, counted no further than that.
    fn consumer(&self, after: &[u8], most: u64) -> impl Answer<Option<(Vec<u8>, Count)>>;

    /// Deletes at most so many marks and failures whose retention has ended.
    fn purge(&self, limit: u32) -> impl Answer<u64>;

    /// Deletes at most so many of both together, as one batch of a purger, under its lock.
    fn purge_batch(&self, limit: u32) -> impl Answer<Batch>;
}

/// How the tables stand.
#[derive(Clone, Copy, Debug)]
pub struct Stood {
    /// The marks.
    pub marks: Kept,
    /// Messages of which failures are counted.
    pub failing: Count,
}

/// A transaction that was begun here.
pub struct Lent<R: Rows> {
    /// The transaction.
    pub transaction: Transaction<'static, R::Engine>,
    /// What goes with it.
    pub session: R::Session,
}

/// A commit that came to nothing, or whose outcome is open.
pub struct Uncommitted<R: Rows> {
    /// Why.
    pub error: Error,
    /// What is still to be rolled back.
    pub lent: Option<Lent<R>>,
}

impl<R: Rows> fmt::Debug for Lent<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent(..)")
    }
}

impl<R: Rows> fmt::Debug for Uncommitted<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uncommitted").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<R: Rows> Uncommitted<R> {
    /// On SQLite what is committed is known.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn lost(error: Error) -> Self {
        Self { error, lent: None }
    }

    pub(crate) fn open(error: Error, lent: Lent<R>) -> Self {
        Self { error, lent: Some(lent) }
    }
}
