//! A store whose answers' bodies are kept in another form: compressed, or encrypted at rest (H41).

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Extensions;

use super::{
    Boxed, Checkpoint, Claim, ClaimRequest, Entry, Fence, Kept, LeaseControl, Operate, Operated, Purge, RollbackOnDrop,
    Settled, Settlement, Store, Unkeyed, Verdict,
};
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::lookup::Endpoint;
use crate::purge::Batch;
use crate::record::AnswerBody;
use crate::scope::ScopeId;

/// How bodies are kept. Statuses, header fields and trailers are not touched: what must not be readable in the store does
/// not belong there.
pub trait BodyCodec: Send + Sync + 'static {
    /// The stored form of a body.
    fn encode(&self, body: Bytes) -> Bytes;

    /// The body of a stored form.
    ///
    /// # Errors
    /// Whatever says that this is not what `encode` made: the request is then answered 503, never run again.
    fn decode(&self, stored: Bytes) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;
}

/// A store around a store: bodies pass a [`BodyCodec`] on their way in and out.
///
/// Every process that uses the same keys must use the same codec. A request's fingerprint is compared before its answer
/// is decoded, so that a wrong body is told 422 also where the answer cannot be read (case F16).
#[derive(Clone)]
pub struct CodedStore<S> {
    inner: S,
    codec: Arc<dyn BodyCodec>,
}

impl<S: Store> CodedStore<S> {
    /// Keeps the bodies of `inner` in the form of `codec`.
    pub fn new(inner: S, codec: impl BodyCodec) -> Self {
        Self { inner, codec: Arc::new(codec) }
    }
}

impl<S: fmt::Debug> fmt::Debug for CodedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodedStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Store> Store for CodedStore<S> {
    type Claim = CodedClaim<S::Claim>;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<Self::Claim>, Error> {
        let verdict = self.inner.claim(request).await?;
        let verdict = verdict.map_claim(|inner| CodedClaim { inner, codec: Arc::clone(&self.codec) });
        decoded(self.codec.as_ref(), verdict)
    }

    fn unkeyed(&self) -> Option<Box<dyn Unkeyed>> {
        self.inner.unkeyed()
    }
}

impl<S: Purge> Purge for CodedStore<S> {
    async fn purge(&self, limit: u32) -> Result<u64, Error> {
        self.inner.purge(limit).await
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, Error> {
        self.inner.purge_batch(limit).await
    }
}

impl<S: Operate> Operate for CodedStore<S> {
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        self.inner.find(scope, key, endpoint).await
    }

    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        self.inner.list_stuck(older_than, limit).await
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.inner.release(entry).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        self.inner.settle_as(entry, coded(self.codec.as_ref(), kept)).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        self.inner.forget(entry).await
    }
}

/// A claim of a [`CodedStore`].
pub struct CodedClaim<C> {
    inner: C,
    codec: Arc<dyn BodyCodec>,
}

impl<C: fmt::Debug> fmt::Debug for CodedClaim<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodedClaim").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<C: Claim> Claim for CodedClaim<C> {
    fn attach(&self, extensions: &mut Extensions) {
        self.inner.attach(extensions);
    }

    fn take_back(&mut self) -> Result<(), Error> {
        self.inner.take_back()
    }

    fn attempt(&self) -> u64 {
        self.inner.attempt()
    }

    fn fence(&self) -> Option<Fence> {
        self.inner.fence()
    }

    fn lease(&self) -> Option<Duration> {
        self.inner.lease()
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        let inner = self.inner.control()?;
        Some(Arc::new(CodedControl { inner, codec: Arc::clone(&self.codec) }))
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.inner.renew().await
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        let Self { inner, codec } = self;
        Ok(match inner.settle(encoded(codec.as_ref(), settlement)).await? {
            Settled::Recorded => Settled::Recorded,
            Settled::Superseded(verdict) => Settled::Superseded(decoded(codec.as_ref(), verdict)?),
        })
    }
}

impl<C: RollbackOnDrop> RollbackOnDrop for CodedClaim<C> {}

/// The control of a lease whose answer is coded too when it is recorded late.
struct CodedControl {
    inner: Arc<dyn LeaseControl>,
    codec: Arc<dyn BodyCodec>,
}

impl LeaseControl for CodedControl {
    fn dispatching(&self) -> Boxed<'_, ()> {
        self.inner.dispatching()
    }

    fn record(&self, settlement: Settlement) -> Boxed<'_, ()> {
        self.inner.record(encoded(self.codec.as_ref(), settlement))
    }

    fn checkpoint(&self) -> Option<&Checkpoint> {
        self.inner.checkpoint()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

fn encoded(codec: &dyn BodyCodec, settlement: Settlement) -> Settlement {
    match settlement {
        Settlement::Commit(kept) => Settlement::Commit(coded(codec, kept)),
        Settlement::Refuse(kept) => Settlement::Refuse(coded(codec, kept)),
        ended @ (Settlement::Abandon | Settlement::Unknown) => ended,
    }
}

fn coded(codec: &dyn BodyCodec, mut kept: Kept) -> Kept {
    if let AnswerBody::Kept(body) = kept.answer.body {
        kept.answer.body = AnswerBody::Kept(codec.encode(body));
    }
    kept
}

fn decoded<C>(codec: &dyn BodyCodec, verdict: Verdict<C>) -> Result<Verdict<C>, Error> {
    let Verdict::Replay(mut record) = verdict else { return Ok(verdict) };
    if let AnswerBody::Kept(stored) = record.answer.body {
        let body = codec.decode(stored).map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
        record.answer.body = AnswerBody::Kept(body);
    }
    Ok(Verdict::Replay(record))
}
