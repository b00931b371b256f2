//! The seam between leases and the engines that keep them: what a table of leases can do. What follows from what is
//! seen is decided in `store/leased`, for all engines alike.
#![allow(unnameable_types, reason = "parts of the sealed trait `LeaseDialect`")]

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use sqlx::{Database, Pool};

use super::Dialect;
use super::slot::depth;
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::lookup::LookupKey;
use crate::purge::Batch;
use crate::store::{Checkpoint, KeyStats, Token};

/// Declares the texts of an engine whose tables stand in schemas: expanded once, when the store is opened.
#[cfg(any(feature = "postgres", feature = "mysql"))]
macro_rules! texts {
    ($($name:ident: $template:ident,)*) => {
        /// The texts for one schema.
        #[derive(Debug)]
        pub(super) struct Texts {
            $(pub(super) $name: sqlx::SqlStr,)*
        }

        impl Texts {
            pub(super) fn new(expand: impl Fn(&'static str) -> sqlx::SqlStr) -> Self {
                Self { $($name: expand($template),)* }
            }
        }

        /// For a look at all of them.
        #[cfg(test)]
        const ALL: &[(&str, &str)] = &[$((stringify!($name), $template),)*];
    };
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) use texts;

/// A database engine that can keep leases. Sealed: implemented for the engines of this crate.
pub trait LeaseDialect: Dialect {
    /// The engine's table of leases.
    #[doc(hidden)]
    type Table: Table<Engine = Self>;
}

/// A table of leases. Every call is one statement that changes something, in a transaction of its own; none waits for
/// a rival, and every change compares a token.
pub trait Table: Sized + Send + Sync + 'static {
    /// Whose transactions guard and checkpoint.
    type Engine: Database;

    /// Looks at the database. `schema`: where the tables are, for engines that have schemas.
    fn open(pool: Pool<Self::Engine>, schema: Option<&str>) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Brings the tables to the newest version.
    fn migrate(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// What an error of one of these statements means.
    fn error(error: sqlx::Error) -> Error;

    /// Reads the row of the key and, where there is none, inserts it.
    fn ask(&self, lease: &NewLease<'_>) -> impl Answer<Asked>;

    /// Takes a row if it still is what was seen. `None`: it is not, or somebody has locked it.
    fn take(&self, lease: &NewLease<'_>, seen: &Seen, how: Take) -> impl Answer<Option<Granted>>;

    /// Changes the owner's row. `false`: there is none that it owns and that is not completed, or, for
    /// [`Change::Renew`] alone, somebody has locked it.
    fn change(&self, owner: &Owner, change: Change<'_>) -> impl Answer<bool>;

    /// Where the row with the owner's token stands.
    fn standing(&self, owner: &Owner) -> impl Answer<Option<Standing>>;

    /// In the caller's transaction: takes the owner's row, prolongs its lease and, with a step, keeps a checkpoint.
    /// `false`: it is not the owner's any more, and the transaction cannot commit. An error of configuration for a
    /// connection on which that cannot be promised.
    fn hold(
        &self,
        connection: &mut <Self::Engine as Database>::Connection,
        owner: &Owner,
        lease: Duration,
        step: Option<(&str, &[u8])>,
    ) -> impl Answer<bool>;

    /// Live rows.
    fn search(&self, search: Search<'_>) -> impl Answer<Vec<Found>>;

    /// Changes a row that nobody runs, by token and fence. `false`: it is not such a row, or somebody has locked it.
    fn operate(&self, owner: &Owner, fence: i64, operation: Operation<'_>) -> impl Answer<bool>;

    /// Counts, each no further than this.
    fn stats(&self, most: u64) -> impl Answer<KeyStats>;

    /// Deletes at most so many expired rows.
    fn purge(&self, limit: u32) -> impl Answer<u64>;

    /// The same as one batch of a purger, under its lock.
    fn purge_batch(&self, limit: u32) -> impl Answer<Batch>;
}

/// A statement's future.
pub trait Answer<T>: Future<Output = Result<T, sqlx::Error>> + Send {}
impl<T, F: Future<Output = Result<T, sqlx::Error>> + Send> Answer<T> for F {}

/// What a claim wants to own.
#[derive(Debug)]
pub struct NewLease<'a> {
    /// Under what.
    pub lookup: &'a LookupKey,
    /// For which request.
    pub fingerprint: &'a Fingerprint,
    /// The claim's own name.
    pub token: Token,
    /// How long, unless it is renewed.
    pub lease: Duration,
    /// How long the record is kept, from acceptance.
    pub retention: Duration,
    /// Whether nobody follows if it stops.
    pub held: bool,
}

/// Which row, and whose.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The row's key.
    pub lookup: LookupKey,
    /// The owner's token.
    pub token: Token,
}

/// What a claim meets.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a request and moved once: cheaper than a box")]
pub enum Asked {
    /// There was no row; it is the claim's own now.
    Granted(Granted),
    /// There is one, expired or not.
    Seen(Seen),
    /// Inserted by somebody else meanwhile: ask again.
    Unseen,
}

/// A row as it was, judged by the server's clock.
#[derive(Debug)]
pub struct Seen {
    /// Whether its answer is stored.
    pub completed: bool,
    /// In its stored form.
    pub fingerprint: Vec<u8>,
    /// Its owner's token.
    pub token: Vec<u8>,
    /// Whether nobody follows an attempt that stopped.
    pub held: bool,
    /// Whether it counts as absent.
    pub expired: bool,
    /// Whether its lease has ended.
    pub ended: bool,
    /// The stored answer.
    pub answer: Option<Bytes>,
    /// What its owner was granted.
    pub granted: Granted,
}

/// What comes with a lease.
#[derive(Debug)]
pub struct Granted {
    /// Larger than that of any earlier owner.
    pub fence: i64,
    /// Counted from 1.
    pub attempt: i64,
    /// What earlier attempts have left.
    pub checkpoint: Option<Checkpoint>,
}

/// How a row is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Its lease has ended: as the next attempt at the same operation.
    Over,
    /// It has expired: as if there were none.
    Afresh,
}

/// What an owner does with its row.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// So long from now.
    Renew(Duration),
    /// It is about to call somebody else.
    Dispatch {
        /// Whether nobody follows if it stops.
        held: bool,
    },
    /// The answer, in its stored form.
    Settle(Stored<'a>),
    /// Nobody owns it any more; it expires at once, or, with a checkpoint, waits for the next attempt.
    Abandon,
    /// Its lease ends at once.
    Stop,
}

/// An answer to keep.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// In its stored form.
    pub answer: &'a [u8],
    /// From acceptance, and a minute from now at least.
    pub retention: Duration,
}

/// Where an owner's row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not completed.
    Running,
    /// Completed.
    Completed,
}

/// Which rows operators look for.
#[derive(Clone, Copy, Debug)]
pub enum Search<'a> {
    /// Of one key, in one endpoint or in all.
    Key {
        /// Whose.
        scope: &'a str,
        /// The key.
        key: &'a str,
        /// Only there.
        endpoint: Option<&'a str>,
    },
    /// That wait for somebody, the oldest first.
    Stuck {
        /// Those that run count from this age on.
        older_than: Duration,
        /// At most so many.
        limit: u32,
    },
}

/// A row as operators see it. Times in microseconds, by the server's clock.
#[derive(Debug)]
pub struct Found {
    /// The three parts of its key.
    pub lookup: [String; 3],
    /// Whether its answer is stored.
    pub completed: bool,
    /// Its owner's token.
    pub token: Vec<u8>,
    /// Its owner's fence.
    pub fence: i64,
    /// Its owner's attempt.
    pub attempt: i64,
    /// Whether nobody follows an attempt that stopped.
    pub held: bool,
    /// Since acceptance.
    pub age: i64,
    /// Until it counts as absent.
    pub expires_in: i64,
    /// Until its lease ends; negative where it has.
    pub lease_left: i64,
    /// The stored answer.
    pub answer: Option<Bytes>,
    /// The last step that is done.
    pub step: Option<String>,
}

/// What an operator does with a row that nobody runs.
#[derive(Debug)]
pub enum Operation<'a> {
    /// The next attempt may follow.
    Release,
    /// It has this answer.
    Settle(Stored<'a>),
    /// Away with it, which is still completed, or still not.
    Forget { completed: bool },
}

/// Refuses a nested transaction: what makes one unable to commit is undone with it alone.
pub(crate) fn is_outermost<DB: Dialect>(connection: &DB::Connection) -> Result<(), sqlx::Error> {
    if depth::<DB>(connection) > 1 {
        let what = "a nested transaction cannot guard: its end is not the end of what it is nested in";
        return Err(sqlx::Error::Configuration(what.into()));
    }
    Ok(())
}

/// The token of a row that nobody owns; no random one has this form.
pub(crate) const NOBODY: [u8; 16] = [0; 16];

/// A length as servers take it; a thousand years is as good as for ever and stays within their calendars.
pub(crate) fn microseconds(duration: Duration) -> i64 {
    const MOST: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);
    i64::try_from(duration.min(MOST).as_micros()).unwrap_or(i64::MAX)
}

/// A checkpoint from its two columns.
pub(crate) fn checkpoint(step: Option<String>, state: Option<Vec<u8>>) -> Option<Checkpoint> {
    Some(Checkpoint { step: step?, state: state.unwrap_or_default().into() })
}
