//! Relays and steps that the properties share.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Broker;
use crate::db::OutboxDialect;
use crate::outbox::relay::{Counts, Delivery, Relay};
use crate::outbox::{Event, Outbox};
use crate::testing::outbox::Harness;

/// The destination of the kit.
pub(super) const BROKER: &str = "broker";

/// An event without a key.
pub(super) fn event(text: &str) -> Event {
    Event::new(BROKER, "kit.topic", "kit.happened", "/kit").payload("text/plain", text.to_owned())
}

/// Short waits, so that failures are over soon.
pub(super) fn delivery() -> Delivery {
    Delivery::new()
        .retry_after(Duration::from_millis(20), Duration::from_millis(100))
        .outage_retry_after(Duration::from_millis(5), Duration::from_millis(50))
}

/// A relay with a short lease.
pub(super) async fn relay<H: Harness>(harness: &H, broker: Broker, delivery: Delivery) -> Relay<H::DB> {
    Relay::new(harness.outbox().await)
        .publisher_with(BROKER, broker, delivery)
        .lease(Duration::from_secs(2))
        .poll_idle(Duration::from_millis(200))
}

/// A relay that runs.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Counts, crate::Error>>,
}

impl Running {
    pub(super) fn start<DB: OutboxDialect>(relay: Relay<DB>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        #[allow(clippy::disallowed_methods, reason = "a test's relay")]
        let task = tokio::spawn(relay.run(async { drop(stopped.await) }));
        Self { stop, task }
    }

    /// In order.
    pub(super) async fn stop(self) -> Counts {
        let _ = self.stop.send(());
        match done(async { self.task.await.map_err(|_| "the relay panicked") }).await {
            Ok(counts) => counts,
            Err(error) => panic!("the relay has failed: {error:?}"),
        }
    }

    /// What it ends with by itself.
    pub(super) async fn ended(self) -> Result<Counts, crate::Error> {
        // Held, so that it is not told to stop.
        let _stop = self.stop;
        done(async { self.task.await.map_err(|_| "the relay panicked") }).await
    }

    /// As if its process were killed.
    pub(super) async fn kill(self) {
        self.task.abort();
        // Its tasks end with it.
        drop(self.task.await);
    }
}

/// The value, or a panic with the error.
pub(super) async fn done<T, E: std::fmt::Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    match call.await {
        Ok(done) => done,
        Err(error) => panic!("must not fail: {error:?}"),
    }
}

/// Each event in a transaction of its own.
pub(super) async fn enqueue<H: Harness>(harness: &H, outbox: &Outbox<H::DB>, events: &[Event]) {
    for event in events {
        let mut tx = harness.transaction().await;
        done(outbox.enqueue(&mut tx, event)).await;
        done(tx.commit()).await;
    }
}

/// All in one transaction.
pub(super) async fn enqueue_all<H: Harness>(harness: &H, outbox: &Outbox<H::DB>, events: &[Event]) {
    for events in events.chunks(500) {
        let mut tx = harness.transaction().await;
        done(outbox.enqueue_all(&mut tx, events)).await;
        done(tx.commit()).await;
    }
}

/// Waits until it holds; a busy machine has its time.
pub(super) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nothing is pending.
pub(super) async fn until_empty<DB: OutboxDialect>(outbox: &Outbox<DB>) {
    until("an empty outbox", async || done(outbox.stats()).await.pending == 0).await;
}
