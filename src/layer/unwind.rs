//! Catches the panic of a future, so that the claim can be settled before it goes on (H26).

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

type Payload = Box<dyn Any + Send>;

pin_project! {
    /// Makes a future and runs it; a panic of either becomes an `Err`. What they touched is not used afterwards, save the
    /// claim, which is settled as abandoned.
    #[project = CaughtProjection]
    pub(crate) enum Caught<F> {
        Running { #[pin] future: F },
        Panicked { payload: Option<Payload> },
    }
}

impl<F> Caught<F> {
    pub(crate) fn calling(make: impl FnOnce() -> F) -> Self {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(future) => Self::Running { future },
            Err(payload) => Self::Panicked { payload: Some(payload) },
        }
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Payload>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = match self.project() {
            CaughtProjection::Running { future } => future,
            CaughtProjection::Panicked { payload } => {
                return payload.take().map_or(Poll::Pending, |payload| Poll::Ready(Err(payload)));
            }
        };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    }
}
