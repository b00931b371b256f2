//! A store whose type is not known before the program runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;

use super::{
    Boxed, Claim, ClaimRequest, Entry, Fence, Kept, KeyStats, LeaseControl, Operate, Operated, Purge, Settled,
    Settlement, Store, Unkeyed, Verdict,
};
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::lookup::Endpoint;
use crate::purge::Batch;
use crate::scope::ScopeId;

/// Any store, for programs that choose theirs by configuration. Costs one allocation a call.
///
/// [`AnyStore::new`] takes whatever is a [`Store`]. [`AnyStore::operable`] takes one that can be purged and operated, as
/// every store of this crate can, and passes these calls on too. What only some stores can do at compile time, such as
/// [`RollbackOnDrop`](super::RollbackOnDrop), it cannot.
///
/// ```
/// use idempotency::{IdempotencyLayer, MemoryStore, Scope};
/// use idempotency::store::AnyStore;
///
/// let store = AnyStore::operable(MemoryStore::new());
/// let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
/// // `store.purge(…)` and the calls of `Operate` reach the memory store.
/// ```
#[derive(Clone)]
pub struct AnyStore {
    store: Arc<dyn ErasedStore>,
    operable: Option<Arc<dyn ErasedOperate>>,
}

impl AnyStore {
    /// Hides the type of `store`. Calls of [`Purge`] and [`Operate`] are errors of kind
    /// [`ErrorKind::Setup`]: a purge that did nothing would let the table grow in silence.
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), operable: None }
    }

    /// Hides the type of `store`, and passes on the calls of [`Purge`] and [`Operate`].
    pub fn operable(store: impl Purge + Operate) -> Self {
        let store = Arc::new(store);
        Self { store: Arc::clone(&store) as _, operable: Some(store) }
    }

    fn operator(&self) -> Result<&dyn ErasedOperate, Error> {
        let setup = || {
            let what = "the store inside was given without purge and operator calls: use `AnyStore::operable`";
            Error::with_source(ErrorKind::Setup, what)
        };
        self.operable.as_deref().ok_or_else(setup)
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
        self.store.claim(request).await
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        self.store.unkeyed()
    }
}

/// [`ErrorKind::Setup`] where the store was not given to [`AnyStore::operable`].
impl Purge for AnyStore {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        self.operator()?.purge(limit).await
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        self.operator()?.purge_batch(limit).await
    }
}

/// [`ErrorKind::Setup`] where the store was not given to [`AnyStore::operable`].
impl Operate for AnyStore {
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        self.operator()?.find(scope, key, endpoint).await
    }

    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        self.operator()?.list_stuck(older_than, limit).await
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.operator()?.release(entry).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        self.operator()?.settle_as(entry, kept).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        self.operator()?.forget(entry).await
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, Error> {
        self.operator()?.stats(most).await
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
}

impl<S: Store> ErasedStore for S {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> Boxed<'a, Verdict<AnyClaim>> {
        Box::pin(async move { Ok(Store::claim(self, request).await?.map_claim(|claim| AnyClaim(Box::new(claim)))) })
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        Store::unkeyed(self)
    }
}

trait ErasedOperate: Send + Sync {
    fn purge(&self, limit: u32) -> Boxed<'_, u64>;
    fn purge_batch(&self, limit: u32) -> Boxed<'_, Batch>;
    fn find<'a>(&'a self, scope: &'a ScopeId, key: &'a Key, endpoint: Option<&'a Endpoint>) -> Boxed<'a, Vec<Entry>>;
    fn list_stuck(&self, older_than: Duration, limit: u32) -> Boxed<'_, Vec<Entry>>;
    fn release<'a>(&'a self, entry: &'a Entry) -> Boxed<'a, Operated>;
    fn settle_as<'a>(&'a self, entry: &'a Entry, kept: Kept) -> Boxed<'a, Operated>;
    fn forget<'a>(&'a self, entry: &'a Entry) -> Boxed<'a, Operated>;
    fn stats(&self, most: u64) -> Boxed<'_, KeyStats>;
}

impl<S: Purge + Operate> ErasedOperate for S {
    fn purge(&self, limit: u32) -> Boxed<'_, u64> {
        Box::pin(Purge::purge(self, limit))
    }

    fn purge_batch(&self, limit: u32) -> Boxed<'_, Batch> {
        Box::pin(Purge::purge_batch(self, limit))
    }

    fn find<'a>(&'a self, scope: &'a ScopeId, key: &'a Key, endpoint: Option<&'a Endpoint>) -> Boxed<'a, Vec<Entry>> {
        Box::pin(Operate::find(self, scope, key, endpoint))
    }

    fn list_stuck(&self, older_than: Duration, limit: u32) -> Boxed<'_, Vec<Entry>> {
        Box::pin(Operate::list_stuck(self, older_than, limit))
    }

    fn release<'a>(&'a self, entry: &'a Entry) -> Boxed<'a, Operated> {
        Box::pin(Operate::release(self, entry))
    }

    fn settle_as<'a>(&'a self, entry: &'a Entry, kept: Kept) -> Boxed<'a, Operated> {
        Box::pin(Operate::settle_as(self, entry, kept))
    }

    fn forget<'a>(&'a self, entry: &'a Entry) -> Boxed<'a, Operated> {
        Box::pin(Operate::forget(self, entry))
    }

    fn stats(&self, most: u64) -> Boxed<'_, KeyStats> {
        Box::pin(Operate::stats(self, most))
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
