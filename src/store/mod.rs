//! The contract between the layer and whoever holds the keys, and the stores of this crate.
//!
//! A store of your own implements [`Store::claim`] and [`Claim::settle`]; everything else has a default. Run the
//! conformance kit of [`testing`](crate::testing) against it.
//!
//! # What a store promises
//! - **One owner.** Of any number of concurrent `claim`s of one [`LookupKey`](crate::LookupKey), at most one is told
//!   [`Verdict::Claimed`] until it is settled, dropped, or (lease stores) its lease has ended.
//! - **Nobody waits.** A claim never waits for a rival claim.
//! - **In doubt, an error.** Never `Claimed`, never `Replay`.
//! - **Server time.** Every instant is the store's own; no client clock enters a decision.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

mod any;
mod coded;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod isolation;
mod lease;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod leased;
mod memory;
mod operate;
mod request;
mod stats;
pub(crate) mod stored;

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;

use crate::attempt::Attempt;
use crate::error::Error;
use crate::events::{Event, emit};
use crate::purge::Batch;
use crate::record::{Answer, Record};

pub use any::{AnyClaim, AnyStore};
pub use coded::{BodyCodec, CodedClaim, CodedStore};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use isolation::Isolation;
pub use lease::{Boxed, Checkpoint, LeaseControl, OnUnknown};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use leased::{LeaseClaim, LeaseStore, Resumed};
pub use memory::{MemoryClaim, MemoryStore};
#[cfg(feature = "mysql")]
pub use mysql::{MySqlClaim, MySqlStore, MySqlStoreBuilder};
pub use operate::{Entry, Holder, Operate, Operated};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresClaim, PostgresStore, PostgresStoreBuilder};
#[cfg(all(feature = "redis", any(feature = "postgres", feature = "sqlite", feature = "mysql")))]
pub(crate) use redis::Unwritten;
#[cfg(feature = "redis")]
pub(crate) use redis::window;
#[cfg(feature = "redis")]
pub use redis::{RedisClaim, RedisStore, RedisStoreBuilder};
pub(crate) use request::Fingerprints;
pub use request::{ClaimRequest, Fence, Token};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteClaim, SqliteStore};
pub use stats::{Count, KeyStats};

/// Holds the keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an idempotency store",
    note = "use `PostgresStore`, `MySqlStore`, `SqliteStore`, `LeaseStore` or `MemoryStore`, or implement `Store` for it"
)]
pub trait Store: Clone + Send + Sync + 'static {
    /// The guard of a claimed key.
    type Claim: Claim;

    /// Asks for the key of `request`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) and its kin: nothing is claimed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind: what it may have claimed is free again (transactional stores at
    /// once, lease stores when the lease ends, save those that hold from the start: see [`OnUnknown::Hold`]).
    fn claim(&self, request: &ClaimRequest) -> impl Future<Output = Result<Verdict<Self::Claim>, Error>> + Send;

    /// A plain transaction for a guarded request without a key (H2): begun when the handler first takes it.
    /// `None` for stores that have no transactions to lend.
    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        None
    }
}

/// The guard of a claimed key: dropping it publishes nothing, settling consumes it.
pub trait Claim: Send + 'static {
    /// Puts what the handler may use into the request's extensions, such as a transaction to lend.
    fn attach(&self, extensions: &mut Extensions) {
        let _ = extensions;
    }

    /// Takes back what was lent. Called when the handler has returned, before its body is read.
    ///
    /// # Errors
    /// [`ErrorKind::HeldTransaction`](crate::ErrorKind::HeldTransaction) where it is still out.
    fn take_back(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Which attempt at the operation this is, counted from 1.
    fn attempt(&self) -> u64 {
        1
    }

    /// The fencing token of a lease, larger for each later owner of the key. `None` for transactional stores.
    fn fence(&self) -> Option<Fence> {
        None
    }

    /// How long the lease lasts from now, if it is one.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// What the handler may do with its lease. `None` for transactional stores.
    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        None
    }

    /// Prolongs the lease. The layer calls it at a third of [`Claim::lease`].
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) where another attempt owns the key: the layer stops
    /// renewing. After any other error it tries again at the next third.
    ///
    /// # Cancel safety
    /// The layer drops the future when the handler has returned, and settles the same claim: a dropped renewal is done
    /// or undone.
    fn renew(&mut self) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Ok(()))
    }

    /// Ends the claim.
    ///
    /// # Errors
    /// See [`ErrorKind`](crate::ErrorKind). Nothing was kept, save that after `NotRecorded` everything may have been,
    /// and after `TransactionEnded` whatever the handler has made permanent itself.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the settlement done or undone, never half done.
    fn settle(self, settlement: Settlement) -> impl Future<Output = Result<Settled, Error>> + Send;
}

/// Marks claims whose drop undoes everything the handler wrote through them, so that a handler may be cancelled.
pub trait RollbackOnDrop: Claim {}

/// A plain transaction of a guarded request without a key.
pub trait Unkeyed: Send {
    /// Puts the lazy transaction into the request's extensions.
    fn attach(&self, extensions: &mut Extensions);

    /// Commits what the handler wrote (`keep`), or rolls it back. Does nothing if no transaction was taken.
    ///
    /// # Errors
    /// `HeldTransaction` where it is still out, `TransactionEnded`, and what a commit may fail with; a connection lost
    /// in the commit is `NotRecorded`, since there is no record to look for.
    ///
    /// # Cancel safety
    /// Dropped, what the handler wrote is kept or undone.
    fn finish(self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
}

/// A store's answer to a claim.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "made once a request and moved a few times: cheaper than a box")]
pub enum Verdict<C> {
    /// The key is yours: run the handler, then settle.
    Claimed(C),
    /// The operation is done; this is its record.
    Replay(Record),
    /// Another request with the same key and fingerprint, or one that cannot be told apart, is being worked on.
    InProgress {
        /// When to ask again, where the store knows better than the layer.
        retry_after: Option<Duration>,
    },
    /// The key belongs to a request with another fingerprint.
    Mismatch,
    /// The operation's transaction was ended by its own handler; a person has to look (H29).
    Orphaned,
    /// The last attempt stopped after it had called somebody else; a person has to look (S21).
    Unknown,
}

impl<C> Verdict<C> {
    /// The same verdict with another claim in it.
    pub fn map_claim<D>(self, map: impl FnOnce(C) -> D) -> Verdict<D> {
        match self {
            Self::Claimed(claim) => Verdict::Claimed(map(claim)),
            Self::Replay(record) => Verdict::Replay(record),
            Self::InProgress { retry_after } => Verdict::InProgress { retry_after },
            Self::Mismatch => Verdict::Mismatch,
            Self::Orphaned => Verdict::Orphaned,
            Self::Unknown => Verdict::Unknown,
        }
    }

    /// The same verdict for somebody who cannot own the claim. `Err` gives the claim back.
    ///
    /// # Errors
    /// The claim, where the verdict was [`Verdict::Claimed`].
    pub fn without_claim(self) -> Result<Verdict<Infallible>, C> {
        Ok(match self {
            Self::Claimed(claim) => return Err(claim),
            Self::Replay(record) => Verdict::Replay(record),
            Self::InProgress { retry_after } => Verdict::InProgress { retry_after },
            Self::Mismatch => Verdict::Mismatch,
            Self::Orphaned => Verdict::Orphaned,
            Self::Unknown => Verdict::Unknown,
        })
    }
}

/// How a claim ends.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// Keep the handler's writes and the answer.
    Commit(Kept),
    /// Keep the answer, undo the writes.
    Refuse(Kept),
    /// Keep nothing; the key is free.
    Abandon,
    /// Of leases only: the attempt has called somebody else, and what came of it is not known. The lease ends now, and
    /// what follows is what follows a crash: see [`OnUnknown`]. Stores that offer no [`Claim::control`] never see it, and
    /// may treat it as `Abandon`.
    Unknown,
}

impl Settlement {
    /// How a claim ends whose handler gave no answer (S22).
    pub(crate) fn of_failure(attempt: &Attempt) -> Self {
        if attempt.is_dispatched() {
            emit(Event::OutcomeUnknown);
            return Self::Unknown;
        }
        Self::Abandon
    }
}

/// What a settlement keeps, and for how long.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The answer, header fields already chosen.
    pub answer: Answer,
    /// How long from the operation's acceptance; at least 60 s from now whatever it says (H44).
    pub retention: Duration,
}

/// What became of a settlement.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a request and moved a few times: cheaper than a box")]
pub enum Settled {
    /// As asked.
    Recorded,
    /// Somebody else's verdict stands; it is the answer to give.
    Superseded(Verdict<Infallible>),
}

/// Deletes what has expired (S9).
pub trait Purge: Store {
    /// Deletes at most `limit` expired records, never a live or running one, and returns how many.
    ///
    /// # Errors
    /// As for a claim. Safe to repeat.
    ///
    /// # Cancel safety
    /// A dropped purge is done or undone, also in part.
    fn purge(&self, limit: u32) -> impl Future<Output = Result<u64, Error>> + Send;

    /// The same as one short transaction, for a [`Purger`](crate::purge::Purger): under a lock that ends with it, so that of
    /// several processes one purges at a time (S31). Without a database that others share, as [`Purge::purge`] does it.
    ///
    /// # Errors
    /// As for a claim. Safe to repeat.
    ///
    /// # Cancel safety
    /// A dropped batch is done or undone, and nothing stays locked.
    fn purge_batch(&self, limit: u32) -> impl Future<Output = Result<Batch, Error>> + Send {
        async move { Ok(Batch::Done { purged: self.purge(limit).await?, overdue: Duration::ZERO }) }
    }
}
