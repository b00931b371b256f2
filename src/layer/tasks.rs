//! The layer's own tasks: from the claim on, a request runs apart from its client (H25), and a shutdown can wait for
//! all of them (H27).

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinError;
use tokio_util::task::TaskTracker;

#[derive(Clone, Default)]
pub(super) struct Tasks(TaskTracker);

/// How a detached story failed to give an answer.
pub(super) enum Detached {
    /// It panicked: in code of the layer, since a handler's panic is caught in the story.
    Panicked(Box<dyn Any + Send>),
    /// Its runtime is shutting down.
    Cancelled,
}

impl Tasks {
    /// Runs `story` to its end, whether or not anybody waits for it. The caller's span goes with it; task-locals do
    /// not.
    ///
    /// Not an `async fn`, whose future would hold the story beside the task.
    pub(super) fn run<F>(&self, story: F) -> impl Future<Output = Result<F::Output, Detached>> + Send + use<F>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        #[cfg(feature = "tracing")]
        let story = tracing::Instrument::in_current_span(story);
        #[cfg(feature = "metrics")]
        let (client, story) = {
            let (client, end) = crate::series::detached::pair();
            (client, async move {
                let _end = end;
                story.await
            })
        };
        let task = self.0.spawn(story);
        async move {
            #[cfg(feature = "metrics")]
            let _client = client;
            task.await.map_err(|error: JoinError| match error.try_into_panic() {
                Ok(payload) => Detached::Panicked(payload),
                Err(_) => Detached::Cancelled,
            })
        }
    }

    /// Runs `work` that nobody waits for but a shutdown.
    pub(super) fn detach(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(work);
    }

    /// How many are running.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Waits until none is running. New ones may start meanwhile.
    pub(super) async fn drain(&self) {
        self.0.close();
        self.0.wait().await;
    }

    /// As [`Tasks::drain`], for at most so long. Returns how many are still running.
    pub(super) async fn drain_within(&self, limit: Duration) -> usize {
        match tokio::time::timeout(limit, self.drain()).await {
            Ok(()) => 0,
            Err(_) => self.len(),
        }
    }
}
