//! The two body types of the layer: what the handler reads, and what the client gets.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request behind the layer: untouched where the request is not guarded, read whole where it is.
    pub struct RequestBody<B> {
        #[pin]
        inner: RequestInner<B>,
    }
}

pin_project! {
    #[project = RequestProjection]
    enum RequestInner<B> {
        Untouched { #[pin] body: B },
        Read { whole: Whole },
    }
}

impl<B> RequestBody<B> {
    pub(super) fn untouched(body: B) -> Self {
        Self { inner: RequestInner::Untouched { body } }
    }

    pub(super) fn read(data: Bytes, trailers: Trailers) -> Self {
        Self { inner: RequestInner::Read { whole: Whole::new(data, trailers) } }
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            RequestProjection::Untouched { body } => poll_as_bytes(body, cx),
            RequestProjection::Read { whole } => Poll::Ready(whole.next().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            RequestInner::Untouched { body } => body.is_end_stream(),
            RequestInner::Read { whole } => whole.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            RequestInner::Untouched { body } => body.size_hint(),
            RequestInner::Read { whole } => whole.size_hint(),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestBody(..)")
    }
}

pin_project! {
    /// The body of a response of the layer: the handler's own, what was read of it, a stored one, or a refusal's.
    pub struct ResponseBody<B: Body> {
        #[pin]
        inner: ResponseInner<B>,
    }
}

pin_project! {
    #[project = ResponseProjection]
    enum ResponseInner<B: Body> {
        Untouched { #[pin] body: B },
        Whole { whole: Whole },
        Rest { read: VecDeque<Bytes>, body: Pin<Box<B>> },
        Broken { read: VecDeque<Bytes>, error: Option<B::Error> },
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { inner: ResponseInner::Whole { whole: Whole::new(data, trailers.map(Box::new)) } }
    }

    /// What has been read already, then the rest as it comes.
    pub(super) fn rest(read: VecDeque<Bytes>, body: Pin<Box<B>>) -> Self {
        Self { inner: ResponseInner::Rest { read, body } }
    }

    /// What came before the handler's body broke, then its error, so that the client sees a broken answer too.
    pub(super) fn broken(read: VecDeque<Bytes>, error: B::Error) -> Self {
        Self { inner: ResponseInner::Broken { read, error: Some(error) } }
    }
}

impl<B: Body> From<B> for ResponseBody<B> {
    fn from(body: B) -> Self {
        Self { inner: ResponseInner::Untouched { body } }
    }
}

/// Empty.
impl<B: Body> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new(), None)
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            ResponseProjection::Untouched { body } => poll_as_bytes(body, cx),
            ResponseProjection::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            ResponseProjection::Rest { read, body } => match read.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None => poll_as_bytes(body.as_mut(), cx),
            },
            ResponseProjection::Broken { read, error } => match read.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None => Poll::Ready(error.take().map(Err)),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            ResponseInner::Untouched { body } => body.is_end_stream(),
            ResponseInner::Whole { whole } => whole.is_empty(),
            ResponseInner::Rest { read, body } => read.is_empty() && body.is_end_stream(),
            ResponseInner::Broken { error, .. } => error.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            ResponseInner::Untouched { body } => body.size_hint(),
            ResponseInner::Whole { whole } => whole.size_hint(),
            ResponseInner::Rest { read, body } => {
                let rest = body.size_hint();
                let read = read.iter().map(|chunk| chunk.len() as u64).sum();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
                    hint.set_upper(upper);
                }
                hint
            }
            ResponseInner::Broken { .. } => SizeHint::new(),
        }
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseBody(..)")
    }
}

/// Apart from their body, because few bodies have any and a map is large.
pub(super) type Trailers = Option<Box<HeaderMap>>;

/// A body that is all there.
struct Whole {
    data: Bytes,
    trailers: Trailers,
}

impl Whole {
    fn new(data: Bytes, trailers: Trailers) -> Self {
        Self { data, trailers }
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        if !self.data.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.data)));
        }
        self.trailers.take().map(|trailers| Frame::trailers(*trailers))
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    /// Not exact before trailers: HTTP/1.1 servers send a body of a known length without them.
    fn size_hint(&self) -> SizeHint {
        let length = self.data.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(length);
        if self.trailers.is_none() {
            hint.set_upper(length);
        }
        hint
    }
}

/// The next frame of any body, with its data as `Bytes` (no copy where it is `Bytes` already).
pub(super) fn poll_as_bytes<B: Body>(
    body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    let frame = ready!(body.poll_frame(cx));
    Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|mut data| data.copy_to_bytes(data.remaining())))))
}
