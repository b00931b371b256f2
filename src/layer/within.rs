//! A bound in time that costs nothing where the work is done at once.

/// The output of a future, or tokio's error after `limit`. The clock is not asked and no timer made before the future
/// has to wait. A macro, because a function's future would hold the other one twice.
macro_rules! within {
    ($limit:expr, $future:expr) => {{
        let mut future = std::pin::pin!($future);
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(std::future::Future::poll(future.as_mut(), cx)));
        match first.await {
            std::task::Poll::Ready(output) => Ok(output),
            std::task::Poll::Pending => tokio::time::timeout($limit, future).await,
        }
    }};
}

pub(super) use within;
