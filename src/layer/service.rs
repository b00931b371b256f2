//! The layer's service: what the head of a request decides.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::future::ResponseFuture;
use super::grpc::Wire;
use super::reply::Reply;
use super::run::{self, Head};
use super::{GuardedBy, Shared, keyless};
use crate::problem::ProblemKind;
use crate::store::Store;

/// The service that [`IdempotencyLayer`](super::IdempotencyLayer) makes of another one.
pub struct Idempotency<Svc, S> {
    inner: Svc,
    shared: Arc<Shared<S>>,
}

impl<Svc, S> Idempotency<Svc, S> {
    pub(super) fn new(inner: Svc, shared: Arc<Shared<S>>) -> Self {
        Self { inner, shared }
    }
}

impl<Svc: Clone, S> Clone for Idempotency<Svc, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<Svc, S> fmt::Debug for Idempotency<Svc, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl<Svc, S, B, R> Service<Request<B>> for Idempotency<Svc, S>
where
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    Svc::Future: Send + 'static,
    Svc::Error: Send + 'static,
    S: Store,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, B, R>;

    /// Always ready: the inner service is asked just before the claim (H25), so that a duplicate never takes a place
    /// that the first request needs.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let config = &self.shared.config;
        if !config.guards(&parts) || GuardedBy::is(&parts, &self.shared.room) {
            return ResponseFuture::passed(self.inner.clone(), Request::from_parts(parts, body));
        }
        let wire = Wire::of(&parts.headers);
        let refused = |kind| ResponseFuture::refused(Reply::refused(kind).into_response(config, wire));
        let found = match run::head_key(config, &parts) {
            Ok(found) => found,
            Err(_) => return refused(ProblemKind::MalformedKey),
        };
        if found.is_none() && !config.key_source.reads_body() {
            if config.key_required {
                return refused(ProblemKind::MissingKey);
            }
            GuardedBy::mark(&mut parts, &self.shared.room);
            let request = Request::from_parts(parts, RequestBody::untouched(body));
            let (shared, inner) = (Arc::clone(&self.shared), self.inner.clone());
            return ResponseFuture::guarded(Box::pin(async move {
                keyless::run(inner, request, shared.store.unkeyed(), &shared.config, wire).await
            }));
        }
        // A request without a key needs no scope; where the body holds the key, that is not known yet.
        let scope = found.as_ref().and_then(|_| config.scope.of(&parts));
        if scope.is_none()
            && let Some(found) = found
        {
            let reply = Reply::refused(ProblemKind::ScopeUnavailable);
            return ResponseFuture::refused(reply.dress(config, wire, found.field));
        }
        let (shared, inner) = (Arc::clone(&self.shared), self.inner.clone());
        let head = Box::new(Head { parts, wire, found, scope });
        ResponseFuture::guarded(Box::pin(run::run(shared, inner, head, body)))
    }
}
