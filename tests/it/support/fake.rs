//! A store that a test steers: it fails, waits or says something else where it is told to.

use std::any::Any;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use idempotency::store::{
    Boxed, Claim, ClaimRequest, Fence, LeaseControl, MemoryClaim, RollbackOnDrop, Settled, Settlement, Store, Unkeyed,
    Verdict,
};
use idempotency::{Error, ErrorKind, MemoryStore};

type OnClaim = dyn Fn(usize) -> BoxFuture<'static, Option<Result<Verdict<Infallible>, Error>>> + Send + Sync;
type OnRenew = dyn Fn(usize) -> BoxFuture<'static, Result<(), Error>> + Send + Sync;
type OnSettle = dyn Fn(usize) -> BoxFuture<'static, Option<Result<Settled, Error>>> + Send + Sync;

/// A [`MemoryStore`] with hooks. Each is given the number of the call, from 1; `None` lets the memory store answer.
///
/// By default it looks like a transactional store: no fence, no lease, and a dropped claim frees its key at once.
#[derive(Clone)]
pub struct Fake {
    inner: MemoryStore,
    on_claim: Arc<OnClaim>,
    on_renew: Arc<OnRenew>,
    on_settle: Arc<OnSettle>,
    take_back: Option<ErrorKind>,
    lends: Option<Option<ErrorKind>>,
    is_lease: bool,
    is_silent_late: bool,
    seen: Arc<Seen>,
}

#[derive(Default)]
pub struct Seen {
    claims: AtomicUsize,
    renewals: AtomicUsize,
    settles: AtomicUsize,
    settlements: Mutex<Vec<&'static str>>,
}

impl Fake {
    pub fn new() -> Self {
        Self {
            inner: MemoryStore::new(),
            on_claim: Arc::new(|_| std::future::ready(None).boxed()),
            on_renew: Arc::new(|_| std::future::ready(Ok(())).boxed()),
            on_settle: Arc::new(|_| std::future::ready(None).boxed()),
            take_back: None,
            lends: None,
            is_lease: false,
            is_silent_late: false,
            seen: Arc::default(),
        }
    }

    /// Looks like a lease store.
    pub fn lease(mut self) -> Self {
        self.is_lease = true;
        self
    }

    /// Never answers whoever records late.
    pub fn silent_late(mut self) -> Self {
        self.is_silent_late = true;
        self
    }

    pub fn on_claim<F>(mut self, f: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Result<Verdict<Infallible>, Error>>> + Send + 'static,
    {
        self.on_claim = Arc::new(move |call| f(call).boxed());
        self
    }

    pub fn on_settle<F>(mut self, f: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Result<Settled, Error>>> + Send + 'static,
    {
        self.on_settle = Arc::new(move |call| f(call).boxed());
        self
    }

    /// A lease, renewed as the hook says: the lease of the memory store beneath is of 30 s and of the real time.
    pub fn on_renew<F>(mut self, f: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.on_renew = Arc::new(move |call| f(call).boxed());
        self.lease()
    }

    /// Lends requests without a key a "transaction", whose end fails so if it is to fail.
    pub fn lending(mut self, fails: Option<ErrorKind>) -> Self {
        self.lends = Some(fails);
        self
    }

    /// Every claim fails so.
    pub fn down(self, kind: ErrorKind) -> Self {
        self.on_claim(move |_| std::future::ready(Some(Err(kind.into()))))
    }

    /// Every settlement fails so.
    pub fn unsettled(self, kind: ErrorKind) -> Self {
        self.on_settle(move |_| std::future::ready(Some(Err(kind.into()))))
    }

    /// `take_back` fails so.
    pub fn held(mut self, kind: ErrorKind) -> Self {
        self.take_back = Some(kind);
        self
    }

    pub fn claims(&self) -> usize {
        self.seen.claims.load(Ordering::SeqCst)
    }

    pub fn renewals(&self) -> usize {
        self.seen.renewals.load(Ordering::SeqCst)
    }

    /// What was settled, in order: `commit`, `refuse`, `abandon`, `drop`; without a key `keep`, `undo`, `drop`.
    pub fn settlements(&self) -> Vec<&'static str> {
        self.seen.settlements.lock().unwrap().clone()
    }
}

impl Store for Fake {
    type Claim = FakeClaim;

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        self.lends.map(|fails| Box::new(Lent { seen: Arc::clone(&self.seen), fails, open: true }) as _)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<FakeClaim>, Error> {
        let call = self.seen.claims.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(verdict) = (self.on_claim)(call).await {
            return Ok(match verdict? {
                Verdict::Claimed(never) => match never {},
                Verdict::Replay(record) => Verdict::Replay(record),
                Verdict::InProgress { retry_after } => Verdict::InProgress { retry_after },
                Verdict::Mismatch => Verdict::Mismatch,
                _ => Verdict::Orphaned,
            });
        }
        Ok(match self.inner.claim(request).await? {
            Verdict::Claimed(claim) => Verdict::Claimed(FakeClaim { inner: Some(claim), store: self.clone() }),
            Verdict::Replay(record) => Verdict::Replay(record),
            Verdict::InProgress { retry_after } => Verdict::InProgress { retry_after },
            Verdict::Mismatch => Verdict::Mismatch,
            Verdict::Unknown => Verdict::Unknown,
            _ => Verdict::Orphaned,
        })
    }
}

pub struct FakeClaim {
    inner: Option<MemoryClaim>,
    store: Fake,
}

impl FakeClaim {
    fn note(&self, what: &'static str) {
        self.store.seen.settlements.lock().unwrap().push(what);
    }
}

impl Claim for FakeClaim {
    fn take_back(&mut self) -> Result<(), Error> {
        self.store.take_back.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn fence(&self) -> Option<Fence> {
        self.inner.as_ref().filter(|_| self.store.is_lease).and_then(Claim::fence)
    }

    fn lease(&self) -> Option<Duration> {
        self.inner.as_ref().filter(|_| self.store.is_lease).and_then(Claim::lease)
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        if self.store.is_silent_late {
            return Some(Arc::new(SilentLate));
        }
        self.inner.as_ref().filter(|_| self.store.is_lease).and_then(Claim::control)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        let call = self.store.seen.renewals.fetch_add(1, Ordering::SeqCst) + 1;
        (self.store.on_renew)(call).await
    }

    async fn settle(mut self, settlement: Settlement) -> Result<Settled, Error> {
        let call = self.store.seen.settles.fetch_add(1, Ordering::SeqCst) + 1;
        match &settlement {
            Settlement::Commit(_) => self.note("commit"),
            Settlement::Refuse(_) => self.note("refuse"),
            Settlement::Abandon => self.note("abandon"),
            Settlement::Unknown => self.note("unknown"),
        }
        if let Some(settled) = (self.store.on_settle)(call).await {
            if self.store.is_lease {
                // The record stays as it is: held by the lease.
                self.inner = None;
            } else if let Some(inner) = self.inner.take() {
                let _ = inner.settle(Settlement::Abandon).await;
            }
            return settled;
        }
        self.inner.take().unwrap().settle(settlement).await
    }
}

struct SilentLate;

impl LeaseControl for SilentLate {
    fn dispatching(&self) -> Boxed<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn record(&self, _: Settlement) -> Boxed<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl RollbackOnDrop for FakeClaim {}

impl Drop for FakeClaim {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            self.note("drop");
            if !self.store.is_lease {
                // The memory store never waits.
                let _ = inner.settle(Settlement::Abandon).now_or_never();
            }
        }
    }
}

/// In the extensions of a request without a key.
#[derive(Clone)]
pub struct LentTransaction;

struct Lent {
    seen: Arc<Seen>,
    fails: Option<ErrorKind>,
    open: bool,
}

impl Unkeyed for Lent {
    fn attach(&self, extensions: &mut http::Extensions) {
        extensions.insert(LentTransaction);
    }

    fn finish(mut self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        self.open = false;
        Box::pin(async move {
            // The answer has to wait for it.
            tokio::task::yield_now().await;
            self.seen.settlements.lock().unwrap().push(if keep { "keep" } else { "undo" });
            self.fails.map_or(Ok(()), |kind| Err(kind.into()))
        })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.open {
            self.seen.settlements.lock().unwrap().push("drop");
        }
    }
}
