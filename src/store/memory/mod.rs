//! The memory store: leases with fences, for tests, development and services of one process (S26).

mod operate;
mod table;

use std::any::Any;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use super::{Boxed, Claim, ClaimRequest, Fence, LeaseControl, OnUnknown, Purge, Settled, Settlement, Store, Verdict};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use table::{Owner, Table};

/// How many records a store holds unless it is told otherwise.
const CAPACITY: usize = 100_000;
/// How long a claim is held without a renewal unless it is told otherwise.
const LEASE: Duration = Duration::from_secs(30);

/// Keeps keys in this process. What it holds is lost with the process, and with it the promise.
///
/// It is a *lease* store: the claim stands before the handler runs, and what the handler writes elsewhere is not part
/// of it. A handler that is cut off frees its key when the lease ends, and the next attempt runs with a larger
/// [`Fence`].
///
/// It is bounded: when it holds `capacity` live records it refuses new keys with
/// [`ErrorKind::Full`](crate::ErrorKind::Full) (503 at the layer). It never forgets a running claim or an answer
/// before its time.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    lease: Duration,
    on_unknown: OnUnknown,
}

struct Shared {
    table: Table,
    clock: Box<dyn Clock>,
}

impl MemoryStore {
    /// An empty store for 100,000 records with leases of 30 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Shared::new(CAPACITY, Box::new(SystemClock::new())),
            lease: LEASE,
            on_unknown: OnUnknown::default(),
        }
    }

    /// How many records it may hold. At least one. Starts an empty store.
    #[must_use]
    pub fn capacity(self, records: usize) -> Self {
        let shared = match Arc::try_unwrap(self.shared) {
            Ok(shared) => Shared::new(records.max(1), shared.clock),
            Err(shared) => Shared::new(records.max(1), Box::new(SharedClock(shared))),
        };
        Self { shared, ..self }
    }

    /// How long a claim is held without a renewal. The layer renews at a third of it. A clone with another lease shares
    /// the records: one store, a lease for each route.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for less than 3 ms: a lease of zero would hold nothing (S5).
    pub fn lease(self, lease: Duration) -> Result<Self, Error> {
        if lease < Duration::from_millis(3) {
            return Err(Error::with_source(ErrorKind::Setup, "a lease must last at least 3 ms"));
        }
        Ok(Self { lease, ..self })
    }

    /// What follows an attempt whose lease has ended without a settlement. A clone with another choice shares the
    /// records.
    #[must_use]
    pub fn on_unknown(self, on_unknown: OnUnknown) -> Self {
        Self { on_unknown, ..self }
    }

    /// Another clock, for tests. Starts an empty store.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { shared: Shared::new(self.shared.table.capacity(), Box::new(clock)), ..self }
    }

    /// How many records it holds, expired ones that have not been swept included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.table.len()
    }

    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    fn new(capacity: usize, clock: Box<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { table: Table::new(capacity), clock })
    }
}

/// The clock of a store whose clones outlive a setter.
struct SharedClock(Arc<Shared>);

impl Clock for SharedClock {
    fn now(&self) -> Duration {
        self.0.clock.now()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.len()).field("lease", &self.lease).finish()
    }
}

impl Store for MemoryStore {
    type Claim = MemoryClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<MemoryClaim>, Error> {
        let Self { shared, lease, on_unknown } = self;
        let verdict = shared.table.claim(request, shared.clock.now(), (*lease, *on_unknown))?;
        Ok(verdict.map_claim(|owner| MemoryClaim { shared: Arc::clone(shared), lease: *lease, owner }))
    }
}

impl Purge for MemoryStore {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        Ok(self.shared.table.sweep(self.shared.clock.now(), limit))
    }
}

/// A key held in a [`MemoryStore`]. Dropped, it frees the key when the lease ends.
pub struct MemoryClaim {
    shared: Arc<Shared>,
    lease: Duration,
    owner: Owner,
}

impl Claim for MemoryClaim {
    fn attempt(&self) -> u64 {
        self.owner.attempt
    }

    fn fence(&self) -> Option<Fence> {
        Some(Fence(self.owner.fence))
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease)
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        Some(Arc::new(MemoryControl { shared: Arc::clone(&self.shared), owner: self.owner.clone() }))
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.shared.table.renew(&self.owner, self.shared.clock.now(), self.lease)
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        self.shared.table.settle(&self.owner, settlement, self.shared.clock.now())?;
        Ok(Settled::Recorded)
    }
}

struct MemoryControl {
    shared: Arc<Shared>,
    owner: Owner,
}

impl LeaseControl for MemoryControl {
    fn dispatching(&self) -> Boxed<'_, ()> {
        Box::pin(ready(self.shared.table.dispatching(&self.owner)))
    }

    fn record(&self, settlement: Settlement) -> Boxed<'_, ()> {
        Box::pin(ready(self.shared.table.record(&self.owner, settlement, self.shared.clock.now())))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for MemoryClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClaim").field("fence", &self.owner.fence).finish_non_exhaustive()
    }
}
