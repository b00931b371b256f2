//! The layer's service.

use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::fields::Preconditions;
use super::future::ResponseFuture;
use super::layer::PreconditionLayer;
use super::refusal::Refusal;
use crate::layer::ResponseBody;

/// The service that [`PreconditionLayer`] makes of another one.
#[derive(Clone, Debug)]
pub struct PreconditionService<S> {
    inner: S,
    settings: PreconditionLayer,
}

impl<S> PreconditionService<S> {
    pub(super) fn new(inner: S, settings: PreconditionLayer) -> Self {
        Self { inner, settings }
    }

    /// What the head of the request decides.
    fn admit<B>(&self, request: &Request<B>) -> Result<Preconditions, Refusal> {
        let mut read = Preconditions::parse(request.method(), request.headers())?;
        if self.settings.required.contains(request.method()) && !read.has_tags() {
            return Err(Refusal::Required);
        }
        if self.settings.accepts_weakened {
            read = read.accept_weakened_tags();
        }
        Ok(read)
    }
}

impl<S, B, R> Service<Request<B>> for PreconditionService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.admit(&request) {
            Err(refusal) => ResponseFuture::refused(refusal),
            Ok(read) => {
                let reads = matches!(*request.method(), Method::GET | Method::HEAD);
                request.extensions_mut().insert(read.clone());
                ResponseFuture::passed(self.inner.call(request), reads.then_some(read))
            }
        }
    }
}
