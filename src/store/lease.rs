//! What a lease offers its handler, beside the claim itself.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use super::Settlement;
use crate::error::Error;

/// A future of a store's object-safe calls.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What follows an attempt whose lease has ended without a settlement (S21).
///
/// Decided by the settings of the store that the attempt was claimed through, and kept with its record. A record is held
/// no longer than its retention, and no shorter than its lease: give operations that must be held a retention that is
/// much longer than they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// Hold after [`Attempt::dispatching`](crate::Attempt::dispatching), rerun before it: the default.
    ///
    /// A handler that calls somebody else and never says so is run **at least once**.
    #[default]
    HoldDispatched,
    /// The next attempt runs, whatever the last one did: for operations that are safe to repeat from the start, such as
    /// calls with a derived key of their own.
    Rerun,
    /// The next attempt is told 409 `outcome-unknown` until an operator has settled the key, or its retention is over.
    ///
    /// So it is, too, after a claim whose answer never came (the store was slow, or the connection was lost): the store
    /// cannot tell that no handler has run.
    Hold,
}

impl OnUnknown {
    /// Whether an attempt that stops is to be held, as the claim starts it.
    #[must_use]
    pub const fn holds_from_start(self) -> bool {
        matches!(self, Self::Hold)
    }

    /// The same, once it has called somebody else.
    #[must_use]
    pub const fn holds_dispatched(self) -> bool {
        matches!(self, Self::Hold | Self::HoldDispatched)
    }
}

/// The way from a handler to its lease, through [`Attempt`](crate::Attempt). Every call compares the owner's token: from
/// an owner that has lost its lease it changes nothing and is
/// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost).
pub trait LeaseControl: Send + Sync + 'static {
    /// Records that the attempt is about to call somebody else.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) from an owner that has lost its lease. Of a store that cannot be
    /// reached, as for a claim; then it may be recorded all the same.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it recorded or not.
    fn dispatching(&self) -> Boxed<'_, ()>;

    /// Records the end of an attempt whose [`Claim::settle`](super::Claim::settle) has failed. Called again and again
    /// until it succeeds or the lease is lost (H35), so what has been recorded already is a success.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) from an owner that has lost its lease. Of a store that cannot be
    /// reached, as for a claim; then it may be recorded all the same.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it recorded or not.
    fn record(&self, settlement: Settlement) -> Boxed<'_, ()>;

    /// What an earlier attempt at the operation has left, where the store keeps checkpoints.
    fn checkpoint(&self) -> Option<&Checkpoint> {
        None
    }

    /// The control itself, for stores that offer more than this trait: a wrapper gives what it wraps.
    fn as_any(&self) -> &dyn Any;
}

/// How far an operation of several steps has come (S23).
#[derive(Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the last step that is done.
    pub step: String,
    /// What the steps so far have given, as JSON.
    pub state: Bytes,
}

impl fmt::Debug for Checkpoint {
    // What a handler keeps is nobody else's to read (H9).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("step", &self.step).finish_non_exhaustive()
    }
}
