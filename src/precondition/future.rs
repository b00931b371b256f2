//! The answer of the layer's service: 304 and 412 for what is read are judged here, after the handler.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, TRAILER,
    TRANSFER_ENCODING,
};
use http::{Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;

use super::etag::EntityTag;
use super::evaluate::{Current, Verdict};
use super::fields::Preconditions;
use super::refusal::Refusal;
use crate::layer::ResponseBody;

pin_project! {
    /// The future of [`PreconditionService`](super::PreconditionService).
    pub struct ResponseFuture<F> {
        #[pin]
        kind: Kind<F>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F> {
        Refused { refusal: Refusal },
        Passed { #[pin] future: F, read: Option<Preconditions> },
    }
}

impl<F> ResponseFuture<F> {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self { kind: Kind::Refused { refusal } }
    }

    /// `read` are the preconditions of a GET or HEAD.
    pub(super) fn passed(future: F, read: Option<Preconditions>) -> Self {
        Self { kind: Kind::Passed { future, read } }
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project().kind.project() {
            KindProjection::Refused { refusal } => refuse(*refusal),
            KindProjection::Passed { future, read } => {
                let response = ready!(future.poll(cx))?;
                match read.take() {
                    Some(read) => judge(&read, response),
                    None => response.map(ResponseBody::from),
                }
            }
        }))
    }
}

fn refuse<R: Body>(refusal: Refusal) -> Response<ResponseBody<R>> {
    refusal.to_response().map(|document| ResponseBody::whole(document, None))
}

/// Only a success is judged: preconditions do not count where the answer is another one (RFC 9110 section 13.2.1).
fn judge<R: Body>(read: &Preconditions, response: Response<R>) -> Response<ResponseBody<R>> {
    if !response.status().is_success() {
        return response.map(ResponseBody::from);
    }
    match read.judge(Some(&shown(&response))) {
        Verdict::Proceed => response.map(ResponseBody::from),
        Verdict::Failed => refuse(Refusal::Failed),
        Verdict::NotModified => {
            let mut response = response.map(|_| ResponseBody::default());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            // What describes a body that is not there (section 15.4.5). `Cache-Control`, `Vary` and the others stay.
            for name in [
                CONTENT_ENCODING,
                CONTENT_LANGUAGE,
                CONTENT_LENGTH,
                CONTENT_RANGE,
                CONTENT_TYPE,
                TRAILER,
                TRANSFER_ENCODING,
            ] {
                response.headers_mut().remove(name);
            }
            response
        }
    }
}

/// The validators that the answer shows. A tag that is none is like no tag.
fn shown<R>(response: &Response<R>) -> Current {
    let headers = response.headers();
    let tag = headers.get(ETAG).and_then(|value| EntityTag::parse(value.as_bytes()).ok());
    let modified = headers.get(LAST_MODIFIED).and_then(|value| httpdate::parse_http_date(value.to_str().ok()?).ok());
    let current = tag.map_or_else(Current::untagged, Current::tagged);
    match modified {
        Some(at) => current.modified(at),
        None => current,
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture(..)")
    }
}
