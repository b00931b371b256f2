//! Keeps a lease alive while the handler runs (S20).

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::inflight::Place;
use crate::attempt::Attempt;
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
    pub(super) fn new(claim: C, attempt: &Attempt, place: Option<Place>) -> Self {
        match claim.lease() {
            Some(lease) => Self::Beating(Heartbeat::start(claim, lease, attempt.clone(), place)),
            None => Self::Still(claim),
        }
    }

    /// Of an operation that has no row in a layer's table.
    pub(crate) fn alone(claim: C, attempt: &Attempt) -> Self {
        Self::new(claim, attempt, None)
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
    fn start(mut claim: C, lease: Duration, attempt: Attempt, mut place: Option<Place>) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        #[expect(
            clippy::disallowed_methods,
            reason = "a heartbeat of its own, so that a busy handler cannot starve it"
        )]
        let task = tokio::spawn(async move {
            let period = (lease / 3).clamp(SHORTEST, LONGEST);
            // The lease began when the claim was sent, which may be long ago.
            let began = attempt.deadline().and_then(|ends| ends.checked_sub(lease));
            let began = began.map_or_else(Instant::now, Instant::from_std);
            let mut beats = interval_at(began + period, period);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut ends = began + lease.min(LONGEST);
            let mut lost = false;
            loop {
                tokio::select! {
                    biased;
                    // Also when the story is dropped: the claim goes with the task.
                    _ = &mut stopped => return claim,
                    _ = beats.tick() => {}
                }
                let asked_at = Instant::now();
                let renewed = tokio::select! {
                    biased;
                    _ = &mut stopped => return claim,
                    // Boxed: most handlers end before their first beat, and their tasks need no room for it.
                    renewed = Box::pin(timeout(period, claim.renew())) => renewed.unwrap_or_else(unanswered),
                };
                match renewed {
                    Ok(()) => {
                        ends = asked_at + lease.min(LONGEST);
                        lost = false;
                        attempt.renewed(asked_at.into_std(), lease);
                    }
                    Err(error) if error.kind() == ErrorKind::LeaseLost => {
                        if !lost {
                            emit(Event::LeaseLost);
                        }
                        drop(place.and_then(|place| place.leave()));
                        return claim;
                    }
                    // One failed renewal is not a lost lease: the next beat comes before its end.
                    Err(error) => emit_error(Event::RenewalFailed, &error),
                }
                // Counted from the moment of sending: the store's own end is later. Renewing goes on, since nobody need
                // have taken the key over.
                if !lost && Instant::now() >= ends {
                    lost = true;
                    emit(Event::LeaseLost);
                    drop(place.take().and_then(|place| place.leave()));
                }
            }
        });
        Self { stop, task }
    }
}

/// A renewal without an answer is given up when the next one is due.
fn unanswered(elapsed: Elapsed) -> Result<(), Error> {
    Err(Error::with_source(ErrorKind::Unavailable, elapsed))
}
