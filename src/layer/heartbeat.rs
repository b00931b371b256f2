//! Keeps a lease alive while the handler runs (S20).

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, MissedTickBehavior, Sleep, interval_at, sleep_until, timeout};

use super::inflight::Place;
use crate::attempt::Attempt;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit, emit_error};
use crate::series;
use crate::store::Claim;

/// A store may lend for no time at all or for ever; a clock can do neither.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A claim, beating where it is a lease.
pub(crate) enum Held<C> {
    Still(C),
    Leased(Watched<C>),
}

/// A lease and the alarm that starts its heartbeat: most handlers end before the first beat, and need no task for it.
pub(crate) struct Watched<C> {
    care: Arc<Care<C>>,
    /// Dropped with the story, and with it the alarm.
    _alarm: Pin<Box<Sleep>>,
}

/// A lease, wherever it is.
struct Care<C> {
    state: Mutex<State<C>>,
    runtime: Handle,
}

enum State<C> {
    Waiting(Lease<C>),
    Beating(Heartbeat<C>),
    Gone,
}

/// A claim in the care of a task that renews it at a third of its lease.
pub(crate) struct Heartbeat<C> {
    stop: oneshot::Sender<()>,
    task: JoinHandle<C>,
}

/// What a heartbeat needs.
struct Lease<C> {
    claim: C,
    attempt: Attempt,
    place: Option<Place>,
    lasts: Duration,
    began: Instant,
}

impl<C: Claim> Held<C> {
    /// `place` is this process's row of the key: it goes when the lease is lost, so that the next request asks the store.
    pub(super) fn new(claim: C, attempt: &Attempt, place: Option<Place>) -> Self {
        match claim.lease() {
            Some(lasts) => Self::Leased(Watched::new(Lease::new(claim, lasts, attempt.clone(), place))),
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
            Self::Leased(_) => Ok(()),
        }
    }

    /// Ends the care and gives the claim back.
    pub(crate) fn release(self) -> Released<C> {
        let watched = match self {
            Self::Still(claim) => return Released::Claim(claim),
            Self::Leased(watched) => watched,
        };
        let state = mem::replace(&mut *watched.care.lock(), State::Gone);
        match state {
            State::Waiting(lease) => Released::Claim(lease.claim),
            State::Beating(heartbeat) => Released::Beating(heartbeat),
            State::Gone => unreachable!("a claim is released once, and never gone before"),
        }
    }
}

/// A claim that is given back.
pub(crate) enum Released<C> {
    Claim(C),
    /// When its heartbeat has stopped.
    Beating(Heartbeat<C>),
}

impl<C> Released<C> {
    /// `None` if the heartbeat's task is gone: with the runtime, or by a panic of the store.
    pub(crate) async fn claim(self) -> Option<C> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Beating(heartbeat) => heartbeat.stop().await,
        }
    }
}

impl<C> Heartbeat<C> {
    pub(super) async fn stop(self) -> Option<C> {
        // A task that has stopped by itself has dropped the receiver.
        let _ = self.stop.send(());
        self.task.await.ok()
    }
}

impl<C: Claim> Watched<C> {
    fn new(lease: Lease<C>) -> Self {
        let mut alarm = Box::pin(sleep_until(lease.first_beat()));
        let care = Arc::new(Care { state: Mutex::new(State::Waiting(lease)), runtime: Handle::current() });
        // The alarm wakes the care and not the handler's task, which may be too busy to be woken.
        let waker = Waker::from(Arc::clone(&care));
        if alarm.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            waker.wake();
        }
        Self { care, _alarm: alarm }
    }
}

impl<C> Care<C> {
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Claim> Wake for Care<C> {
    /// The first beat is due, or nearly.
    fn wake(self: Arc<Self>) {
        let state = &mut *self.lock();
        *state = match mem::replace(state, State::Gone) {
            State::Waiting(lease) => State::Beating(lease.start(&self.runtime)),
            other => other,
        };
    }
}

impl<C: Claim> Lease<C> {
    fn new(claim: C, lasts: Duration, attempt: Attempt, place: Option<Place>) -> Self {
        // The lease began when the claim was sent, which may be long ago.
        let began = attempt.deadline().and_then(|ends| ends.checked_sub(lasts));
        let began = began.map_or_else(Instant::now, Instant::from_std);
        Self { claim, attempt, place, lasts, began }
    }

    fn period(&self) -> Duration {
        (self.lasts / 3).clamp(SHORTEST, LONGEST)
    }

    fn first_beat(&self) -> Instant {
        self.began + self.period()
    }

    fn start(self, runtime: &Handle) -> Heartbeat<C> {
        let (stop, stopped) = oneshot::channel();
        // A task of its own, so that a busy handler cannot starve it.
        let task = runtime.spawn(self.beat(stopped));
        Heartbeat { stop, task }
    }

    async fn beat(mut self, mut stopped: oneshot::Receiver<()>) -> C {
        let period = self.period();
        let mut beats = interval_at(self.first_beat(), period);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ends = self.began + self.lasts.min(LONGEST);
        let mut lost = false;
        loop {
            tokio::select! {
                biased;
                // Also when the story is dropped: the claim goes with the task.
                _ = &mut stopped => return self.claim,
                _ = beats.tick() => {}
            }
            let asked_at = Instant::now();
            let renewed = tokio::select! {
                biased;
                _ = &mut stopped => return self.claim,
                // Boxed: between two beats the task needs no room for it.
                renewed = Box::pin(timeout(period, self.claim.renew())) => renewed.unwrap_or_else(unanswered),
            };
            match renewed {
                Ok(()) => {
                    series::renewal("renewed");
                    ends = asked_at + self.lasts.min(LONGEST);
                    lost = false;
                    self.attempt.renewed(asked_at.into_std(), self.lasts);
                }
                Err(error) if error.kind() == ErrorKind::LeaseLost => {
                    series::renewal("lost");
                    if !lost {
                        emit(Event::LeaseLost);
                    }
                    drop(self.place.and_then(|place| place.leave()));
                    return self.claim;
                }
                // One failed renewal is not a lost lease: the next beat comes before its end.
                Err(error) => {
                    series::renewal("failed");
                    emit_error(Event::RenewalFailed, &error);
                }
            }
            // Counted from the moment of sending: the store's own end is later. Renewing goes on, since nobody need
            // have taken the key over.
            if !lost && Instant::now() >= ends {
                lost = true;
                emit(Event::LeaseLost);
                drop(self.place.take().and_then(|place| place.leave()));
            }
        }
    }
}

/// A renewal without an answer is given up when the next one is due.
fn unanswered(elapsed: Elapsed) -> Result<(), Error> {
    Err(Error::with_source(ErrorKind::Unavailable, elapsed))
}
