//! Publishers that say when they are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idempotency::outbox::PendingEvent;
use idempotency::outbox::publish::{Answer, Publisher, Publishing};
use tokio::sync::Notify;

/// A destination that costs nothing.
pub(crate) struct Instantly;

impl Publisher for Instantly {
    fn publish(&self, _event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async { Answer::ACKED })
    }
}

/// Counts what was acked.
pub(crate) struct Counting<P> {
    publisher: P,
    progress: Arc<Progress>,
}

#[derive(Default)]
pub(crate) struct Progress {
    acked: AtomicUsize,
    more: Notify,
    enough: AtomicUsize,
}

impl<P> Counting<P> {
    pub(crate) fn new(publisher: P) -> (Self, Arc<Progress>) {
        let progress = Arc::new(Progress::default());
        (Self { publisher, progress: Arc::clone(&progress) }, progress)
    }
}

impl Progress {
    /// Waits for so many acks, counted from the start.
    pub(crate) async fn reaches(&self, enough: usize) {
        self.enough.store(enough, Ordering::SeqCst);
        while self.acked.load(Ordering::SeqCst) < enough {
            self.more.notified().await;
        }
    }
}

impl<P: Publisher> Publisher for Counting<P> {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move {
            let answer = self.publisher.publish(event).await;
            if matches!(answer, Answer::Acked { .. }) {
                let acked = self.progress.acked.fetch_add(1, Ordering::SeqCst) + 1;
                if acked >= self.progress.enough.load(Ordering::SeqCst) {
                    self.progress.more.notify_one();
                }
            }
            answer
        })
    }
}
