//! The memory store: leases with fences, for tests, development and services of one process (S26).

mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Claim, ClaimRequest, Fence, Purge, Settled, Settlement, Store, Verdict};
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
}

struct Shared {
    table: Table,
    clock: Box<dyn Clock>,
    lease: Duration,
}

impl MemoryStore {
    /// An empty store for 100,000 records with leases of 30 s.
    #[must_use]
    pub fn new() -> Self {
        Self::build(CAPACITY, LEASE, Box::new(SystemClock::new()))
    }

    /// How many records it may hold. At least one. What it holds already is forgotten.
    #[must_use]
    pub fn capacity(self, records: usize) -> Self {
        self.rebuild(|_, lease, clock| Self::build(records.max(1), lease, clock))
    }

    /// How long a claim is held without a renewal. The layer renews at a third of it. What the store holds already is
    /// forgotten.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for less than 3 ms: a lease of zero would hold nothing (S5).
    pub fn lease(self, lease: Duration) -> Result<Self, Error> {
        if lease < Duration::from_millis(3) {
            return Err(Error::with_source(ErrorKind::Setup, "a lease must last at least 3 ms"));
        }
        Ok(self.rebuild(|capacity, _, clock| Self::build(capacity, lease, clock)))
    }

    /// Another clock, for tests. What the store holds already is forgotten.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        self.rebuild(|capacity, lease, _| Self::build(capacity, lease, Box::new(clock)))
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

    fn build(capacity: usize, lease: Duration, clock: Box<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { table: Table::new(capacity), clock, lease }) }
    }

    /// Setters are for a store that is not in use yet: they start an empty one.
    fn rebuild(self, build: impl FnOnce(usize, Duration, Box<dyn Clock>) -> Self) -> Self {
        match Arc::try_unwrap(self.shared) {
            Ok(shared) => build(shared.table.capacity(), shared.lease, shared.clock),
            Err(shared) => build(shared.table.capacity(), shared.lease, Box::new(SharedClock(shared))),
        }
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
        f.debug_struct("MemoryStore").field("records", &self.len()).field("lease", &self.shared.lease).finish()
    }
}

impl Store for MemoryStore {
    type Claim = MemoryClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<MemoryClaim>, Error> {
        let shared = &self.shared;
        let verdict = shared.table.claim(request, shared.clock.now(), shared.lease)?;
        Ok(verdict.map_claim(|owner| MemoryClaim { shared: Arc::clone(shared), owner }))
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
        Some(self.shared.lease)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.shared.table.renew(&self.owner, self.shared.clock.now(), self.shared.lease)
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        self.shared.table.settle(&self.owner, settlement, self.shared.clock.now())?;
        Ok(Settled::Recorded)
    }
}

impl fmt::Debug for MemoryClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClaim").field("fence", &self.owner.fence).finish_non_exhaustive()
    }
}
