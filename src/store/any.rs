//! A store whose type is not known before the program runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;

use super::{Boxed, Claim, ClaimRequest, Fence, LeaseControl, Purge, Settled, Settlement, Store, Unkeyed, Verdict};
use crate::error::Error;

/// Any store, for programs that choose theirs by configuration. Costs one allocation a call.
///
/// What only some stores can do at compile time, such as [`RollbackOnDrop`](super::RollbackOnDrop), it cannot.
///
/// ```
/// use idempotency::{IdempotencyLayer, MemoryStore, Scope};
/// use idempotency::store::AnyStore;
///
/// let store = AnyStore::new(MemoryStore::new());
/// let layer = IdempotencyLayer::new(store, Scope::shared());
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<dyn ErasedStore>);

impl AnyStore {
    /// Hides the type of `store`.
    pub fn new(store: impl Purge) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyStore(..)")
    }
}

impl Store for AnyStore {
    type Claim = AnyClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<AnyClaim>, Error> {
        self.0.claim(request).await
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        self.0.unkeyed()
    }
}

impl Purge for AnyStore {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        self.0.purge(limit).await
    }
}

/// A claim of an [`AnyStore`].
pub struct AnyClaim(Box<dyn ErasedClaim>);

impl fmt::Debug for AnyClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyClaim(..)")
    }
}

impl Claim for AnyClaim {
    fn attach(&self, extensions: &mut Extensions) {
        self.0.attach(extensions);
    }

    fn take_back(&mut self) -> Result<(), Error> {
        self.0.take_back()
    }

    fn attempt(&self) -> u64 {
        self.0.attempt()
    }

    fn fence(&self) -> Option<Fence> {
        self.0.fence()
    }

    fn lease(&self) -> Option<Duration> {
        self.0.lease()
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        self.0.control()
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.0.renew().await
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        self.0.settle(settlement).await
    }
}

trait ErasedStore: Send + Sync {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> Boxed<'a, Verdict<AnyClaim>>;
    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>>;
    fn purge(&self, limit: u32) -> Boxed<'_, u64>;
}

impl<S: Purge> ErasedStore for S {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> Boxed<'a, Verdict<AnyClaim>> {
        Box::pin(async move { Ok(Store::claim(self, request).await?.map_claim(|claim| AnyClaim(Box::new(claim)))) })
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        Store::unkeyed(self)
    }

    fn purge(&self, limit: u32) -> Boxed<'_, u64> {
        Box::pin(Purge::purge(self, limit))
    }
}

trait ErasedClaim: Send {
    fn attach(&self, extensions: &mut Extensions);
    fn take_back(&mut self) -> Result<(), Error>;
    fn attempt(&self) -> u64;
    fn fence(&self) -> Option<Fence>;
    fn lease(&self) -> Option<Duration>;
    fn control(&self) -> Option<Arc<dyn LeaseControl>>;
    fn renew(&mut self) -> Boxed<'_, ()>;
    fn settle(self: Box<Self>, settlement: Settlement) -> Boxed<'static, Settled>;
}

impl<C: Claim> ErasedClaim for C {
    fn attach(&self, extensions: &mut Extensions) {
        Claim::attach(self, extensions);
    }

    fn take_back(&mut self) -> Result<(), Error> {
        Claim::take_back(self)
    }

    fn attempt(&self) -> u64 {
        Claim::attempt(self)
    }

    fn fence(&self) -> Option<Fence> {
        Claim::fence(self)
    }

    fn lease(&self) -> Option<Duration> {
        Claim::lease(self)
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        Claim::control(self)
    }

    fn renew(&mut self) -> Boxed<'_, ()> {
        Box::pin(Claim::renew(self))
    }

    fn settle(self: Box<Self>, settlement: Settlement) -> Boxed<'static, Settled> {
        Box::pin(Claim::settle(*self, settlement))
    }
}
