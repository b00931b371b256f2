//! Catches the panic of a future, so that the claim can be settled before it goes on (H26).

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

type Payload = Box<dyn Any + Send>;

/// Calls `work`; its panic becomes an `Err`. What it touched is not used afterwards, save the claim, which is settled as
/// abandoned.
pub(super) fn caught_call<T>(work: impl FnOnce() -> T) -> Result<T, Payload> {
    catch_unwind(AssertUnwindSafe(work))
}

pin_project! {
    /// Runs a future as [`caught_call`] calls a function.
    pub(super) struct Caught<F> {
        #[pin]
        future: F,
    }
}

impl<F> Caught<F> {
    pub(super) fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Payload>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match caught_call(|| future.poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    }
}
