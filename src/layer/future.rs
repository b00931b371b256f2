//! The future of the layer's service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::oneshot::Oneshot;

pub(super) type Boxed<R, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;

pin_project! {
    /// The answer to a request: passed on untouched, refused at once, or guarded.
    pub struct ResponseFuture<Svc, B, R>
    where
        Svc: Service<Request<RequestBody<B>>>,
        R: Body,
    {
        #[pin]
        kind: Kind<Svc, B, R>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<Svc, B, R>
    where
        Svc: Service<Request<RequestBody<B>>>,
        R: Body,
    {
        Passed { #[pin] future: Oneshot<Svc, Request<RequestBody<B>>> },
        Refused { response: Option<Response<ResponseBody<R>>> },
        Guarded { future: Boxed<R, Svc::Error> },
    }
}

impl<Svc, B, R> ResponseFuture<Svc, B, R>
where
    Svc: Service<Request<RequestBody<B>>>,
    R: Body,
{
    pub(super) fn passed(service: Svc, request: Request<B>) -> Self {
        let future = Oneshot::new(service, request.map(RequestBody::untouched));
        Self { kind: Kind::Passed { future } }
    }

    pub(super) fn refused(response: Response<ResponseBody<R>>) -> Self {
        Self { kind: Kind::Refused { response: Some(response) } }
    }

    pub(super) fn guarded(future: Boxed<R, Svc::Error>) -> Self {
        Self { kind: Kind::Guarded { future } }
    }
}

impl<Svc, B, R> Future for ResponseFuture<Svc, B, R>
where
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>>,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, Svc::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Passed { future } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(response.map(ResponseBody::from)))
            }
            KindProjection::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
            KindProjection::Guarded { future } => future.as_mut().poll(cx),
        }
    }
}

impl<Svc, B, R> fmt::Debug for ResponseFuture<Svc, B, R>
where
    Svc: Service<Request<RequestBody<B>>>,
    R: Body,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture(..)")
    }
}
