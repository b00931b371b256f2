//! Bodies that a test steers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// One step of a [`Script`].
pub enum Step {
    Data(&'static str),
    Trailers(HeaderMap),
    /// Pending once, woken at once.
    Yield,
    /// Pending for ever.
    Hang,
    Fail(&'static str),
    Panic,
}

/// A body that does what it is told, without a known length, and counts how often it is polled.
pub struct Script {
    steps: VecDeque<Step>,
    hint: SizeHint,
    pub polls: Arc<AtomicUsize>,
}

impl Script {
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), hint: SizeHint::new(), polls: Arc::default() }
    }

    pub fn chunks(chunks: impl IntoIterator<Item = &'static str>) -> Self {
        Self::new(chunks.into_iter().map(Step::Data))
    }

    pub fn hint(mut self, exact: u64) -> Self {
        self.hint = SizeHint::with_exact(exact);
        self
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(match self.steps.pop_front() {
            None => None,
            Some(Step::Data(text)) => Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))),
            Some(Step::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Step::Fail(why)) => Some(Err(why.into())),
            Some(Step::Panic) => panic!("the body panics"),
            Some(Step::Yield) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Step::Hang) => {
                self.steps.push_front(Step::Hang);
                return Poll::Pending;
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}
