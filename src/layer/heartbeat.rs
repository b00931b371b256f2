//! Keeps a lease alive while the handler runs (S20).

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval_at};

use super::inflight::Place;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit, emit_error};
use crate::store::Claim;

/// A store may lend for no time at all or for ever; a clock can do neither.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A claim in the care of a task that renews it at a third of its lease.
pub(crate) struct Heartbeat<C> {
    stop: oneshot::Sender<()>,
    task: JoinHandle<C>,
}

/// A claim, beating where it is a lease.
pub(crate) enum Held<C> {
    Still(C),
    Beating(Heartbeat<C>),
}

impl<C: Claim> Held<C> {
    /// `place` is this process's row of the key: it goes when the lease is lost, so that the next request asks the store.
    pub(super) fn new(claim: C, place: Option<Place>) -> Self {
        match claim.lease() {
            Some(lease) => Self::Beating(Heartbeat::start(claim, lease, place)),
            None => Self::Still(claim),
        }
    }

    /// Of an operation that has no row in a layer's table.
    pub(crate) fn alone(claim: C) -> Self {
        Self::new(claim, None)
    }

    /// Takes back what a transactional claim has lent; a lease lends nothing.
    pub(crate) fn take_back(&mut self) -> Result<(), Error> {
        match self {
            Self::Still(claim) => claim.take_back(),
            Self::Beating(_) => Ok(()),
        }
    }

    /// Ends the care and gives the claim back. `None` if its task is gone: with the runtime, or by a panic of the store.
    pub(crate) async fn release(self) -> Option<C> {
        match self {
            Self::Still(claim) => Some(claim),
            Self::Beating(heartbeat) => {
                // A task that has stopped by itself has dropped the receiver.
                let _ = heartbeat.stop.send(());
                heartbeat.task.await.ok()
            }
        }
    }
}

impl<C: Claim> Heartbeat<C> {
    fn start(mut claim: C, lease: Duration, place: Option<Place>) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        #[expect(
            clippy::disallowed_methods,
            reason = "a heartbeat of its own, so that a busy handler cannot starve it"
        )]
        let task = tokio::spawn(async move {
            let period = (lease / 3).clamp(SHORTEST, LONGEST);
            let mut beats = interval_at(Instant::now() + period, period);
            loop {
                tokio::select! {
                    biased;
                    // Also when the story is dropped: the claim goes with the task.
                    _ = &mut stopped => return claim,
                    _ = beats.tick() => {}
                }
                let renewed = tokio::select! {
                    biased;
                    _ = &mut stopped => return claim,
                    renewed = claim.renew() => renewed,
                };
                match renewed {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::LeaseLost => {
                        emit(Event::LeaseLost);
                        drop(place.and_then(|place| place.leave()));
                        return claim;
                    }
                    // One failed renewal is not a lost lease: the next beat comes before its end.
                    Err(error) => emit_error(Event::RenewalFailed, &error),
                }
            }
        });
        Self { stop, task }
    }
}
