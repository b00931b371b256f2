//! The one way through, from the claim on: claim, handler, answer, settlement.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::answer::{self, Handled};
use super::body::{RequestBody, Trailers};
use super::grpc::Wire;
use super::heartbeat::Held;
use super::inflight::{Place, Seat, Ticket, Word};
use super::reply::{self, Reply};
use super::run::Head;
use super::unwind::Caught;
use super::within::within;
use super::{GuardedBy, Room, Shared, keyless};
use crate::attempt::{Attempt, overdue};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::store::{Claim, ClaimRequest, Settlement, Store, Verdict};

/// A request that is about to be claimed.
pub(super) struct Story<S, Svc> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) inner: Svc,
    pub(super) claim: ClaimRequest,
    pub(super) wire: Wire,
    /// Of one that has waited for another request, until it is its turn to run.
    pub(super) seat: Option<Seat>,
    /// When such a wait is over.
    pub(super) until: Option<Instant>,
    /// The last run takes it.
    pub(super) request: Option<Saved>,
}

/// A request whose body has been read.
pub(super) type Saved = (Box<Head>, Bytes, Trailers);

/// A request as the handler gets it.
pub(super) fn rebuild<B>((head, data, trailers): Saved, room: &Arc<Room>) -> Request<RequestBody<B>> {
    let Head { mut parts, .. } = *head;
    GuardedBy::mark(&mut parts, room);
    Request::from_parts(parts, RequestBody::read(data, trailers))
}

/// How a story ends.
#[allow(clippy::large_enum_variant, reason = "made once a request and moved a few times: cheaper than a box")]
pub(super) enum End<R: Body, E> {
    Reply(Reply<R>),
    /// The service's own error.
    Error(E),
    /// The handler's panic, to be resumed in its caller.
    Panic(Box<dyn Any + Send>),
}

/// What the telling of a story comes to.
#[allow(clippy::large_enum_variant, reason = "made once a request and moved a few times: cheaper than a box")]
pub(super) enum Told<S, Svc, R: Body, E> {
    End(End<R, E>),
    /// The request runs in another process, and this one may wait: the story can be told again.
    Busy(Busy<S, Svc>),
}

impl<S, Svc, R: Body, E> Told<S, Svc, R, E> {
    pub(super) fn ended(self) -> Result<End<R, E>, Busy<S, Svc>> {
        match self {
            Self::End(end) => Ok(end),
            Self::Busy(busy) => Err(busy),
        }
    }
}

/// A story that has to wait for another process.
pub(super) struct Busy<S, Svc> {
    pub(super) story: Box<Story<S, Svc>>,
    pub(super) ticket: Ticket,
    /// When the store wants to be asked again, if it says so.
    pub(super) retry_after: Option<Duration>,
}

/// A claimed key: the claim, the attempt that its handler sees, and this process's row of it.
struct Owned<C> {
    claim: C,
    attempt: Attempt,
    place: Option<Place>,
}

/// How one run ends.
pub(super) enum Run<R: Body, E> {
    End(End<R, E>),
    /// The database gave the transaction up; the reply is for when it is not run again.
    Conflicted(Reply<R>),
}

impl<S: Store, Svc> Story<S, Svc> {
    pub(super) async fn tell<B, R>(mut self: Box<Self>, ticket: Ticket) -> Told<S, Svc, R, Svc::Error>
    where
        Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
        B: Body,
        R: Body,
    {
        let mut reruns = self.shared.config.reruns;
        loop {
            let ready = poll_fn(|cx| self.inner.poll_ready(cx));
            let ready = match self.until.filter(|_| self.seat.is_some()) {
                Some(until) => timeout_at(until, ready).await,
                None => Ok(ready.await),
            };
            match ready {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Told::End(End::Error(error)),
                Err(_) => return Told::End(End::Reply(reply::in_progress(None))),
            }
            let asked_at = Instant::now();
            let claim = match ask(&self.shared, &self.claim).await {
                Ok(Verdict::Claimed(claim)) => claim,
                Ok(Verdict::InProgress { retry_after }) if self.shared.config.wait.is_some() => {
                    ticket.elsewhere(self.claim.fingerprints());
                    // A service that was asked whether it is ready may keep a place for the call: a clone has none.
                    self.inner = self.inner.clone();
                    self.seat = self.seat.or_else(|| self.shared.room.inflight.seat(self.shared.config.caps));
                    return Told::Busy(Busy { story: self, ticket, retry_after });
                }
                Ok(verdict) => {
                    share(ticket, &verdict, &self.claim);
                    return Told::End(End::Reply(reply::of_verdict(verdict)));
                }
                Err(error) => {
                    task_of_its_own().await;
                    // No verdict: the next one asks (H46), also while this one runs unprotected.
                    drop(ticket);
                    return Told::End(Box::pin(self.without_store(error)).await);
                }
            };
            task_of_its_own().await;
            let attempt = Attempt::new(&self.claim, &claim, asked_at.into_std());
            if attempt.is_overdue(Instant::now().into_std()) {
                // Answered so late that another attempt may be running: this one must not begin (S20).
                let _ = claim.settle(Settlement::Abandon).await;
                drop(ticket);
                return Told::End(End::Reply(reply::failed(&overdue())));
            }
            self.seat = None;
            ticket.running(*self.claim.fingerprint());
            match self.run(Owned { claim, attempt, place: ticket.place() }, reruns == 0).await {
                Run::End(end) => return Told::End(end),
                Run::Conflicted(reply) if reruns == 0 => return Told::End(End::Reply(reply)),
                Run::Conflicted(_) => {
                    reruns -= 1;
                    self.claim = self.claim.again();
                }
            }
        }
    }

    /// Runs the handler under a claim and settles it, in every case. What comes late or seldom is boxed, so that a
    /// request whose handler runs is no larger than it must be.
    async fn run<B, R>(&mut self, owned: Owned<S::Claim>, is_last: bool) -> Run<R, Svc::Error>
    where
        Svc: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body,
    {
        let unfinished = Unfinished;
        let (request, method) = self.prepare(&owned, is_last);
        let (shared, asked, wire) = (&self.shared, &self.claim, self.wire);
        let Owned { claim, attempt, place } = owned;
        let held = Owned { claim: Held::new(claim, &attempt, place.clone()), attempt, place };
        // The call itself may panic, before there is a future.
        let answered = Caught::calling(|| self.inner.call(request)).await;
        let run = Box::pin(conclude(shared, asked, (wire, &method), held, answered)).await;
        unfinished.finished();
        run
    }

    /// The request with what the handler may use, and its method. Apart from [`Story::run`], whose future would keep
    /// room for whatever was borrowed in it.
    fn prepare<B>(&mut self, owned: &Owned<S::Claim>, is_last: bool) -> (Request<RequestBody<B>>, Method) {
        let saved = if is_last { self.request.take() } else { self.request.clone() };
        let Some(saved) = saved else { unreachable!("the last run takes the request, and there is none after it") };
        let mut request = rebuild(saved, &self.shared.room);
        owned.claim.attach(request.extensions_mut());
        request.extensions_mut().insert(owned.attempt.clone());
        let method = request.method().clone();
        (request, method)
    }

    /// A failed claim never reaches the handler (H23), unless the service has asked for it by name.
    async fn without_store<B, R>(self: Box<Self>, error: Error) -> End<R, Svc::Error>
    where
        Svc: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body,
        R: Body,
    {
        let Self { shared, inner, claim, wire, seat, request, .. } = *self;
        let config = &shared.config;
        // Whoever has waited knows of another request, which may still run.
        let may_run = config.unprotected_without_store
            && seat.is_none()
            && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full);
        let Some(saved) = request.filter(|_| may_run) else {
            return End::Reply(reply::failed(&error));
        };
        emit(Event::RanUnprotected);
        let mut request = rebuild(saved, &shared.room);
        // Handlers that insist on an attempt and a transaction get them: a plain one, if the database can be reached
        // after all.
        request.extensions_mut().insert(Attempt::without_lease(&claim));
        match keyless::run(inner, request, shared.store.unkeyed(), config, wire).await {
            Ok(response) => End::Reply(Reply::Fresh(response)),
            Err(error) => End::Error(error),
        }
    }
}

/// Returns on the story's task. Before, there is nobody to wake: see [`tell`](super::run::run).
async fn task_of_its_own() {
    poll_fn(|cx| if cx.waker().will_wake(Waker::noop()) { Poll::Pending } else { Poll::Ready(()) }).await;
}

async fn ask<S: Store>(shared: &Shared<S>, claim: &ClaimRequest) -> Result<Verdict<S::Claim>, Error> {
    within!(shared.config.claim_timeout, shared.store.claim(claim))
        .unwrap_or_else(|elapsed| Err(Error::with_source(ErrorKind::Unavailable, elapsed)))
}

/// Tells those who waited for the verdict what they may conclude from it.
fn share<C>(ticket: Ticket, verdict: &Verdict<C>, claim: &ClaimRequest) {
    match verdict {
        Verdict::Replay(record) => ticket.committed(|| Arc::new(record.clone())),
        Verdict::Mismatch => ticket.share(|| Word::Mismatch(claim.fingerprints().clone())),
        Verdict::InProgress { retry_after } => {
            ticket.share(|| Word::InProgress(claim.fingerprints().clone(), *retry_after));
        }
        // Each asks for itself.
        Verdict::Claimed(_) | Verdict::Orphaned | Verdict::Unknown => {}
    }
}

/// What follows the handler: its answer is read and the claim settled.
async fn conclude<S: Store, R: Body, E>(
    shared: &Shared<S>,
    asked: &ClaimRequest,
    (wire, method): (Wire, &Method),
    Owned { claim: mut held, attempt, place }: Owned<Held<S::Claim>>,
    answered: Result<Result<Response<R>, E>, Box<dyn Any + Send>>,
) -> Run<R, E> {
    let handled = match answered {
        // The body may panic, or the policy.
        Ok(Ok(response)) => {
            let read = || answer::read(&shared.config, (wire, &attempt), method, &mut held, response);
            Caught::calling(read).await.unwrap_or_else(Handled::Panicked)
        }
        Ok(Err(error)) => Handled::ServiceError(error),
        Err(payload) => Handled::Panicked(payload),
    };
    match held.release().await {
        Some(claim) => settle(shared, asked, Owned { claim, attempt, place }, handled).await,
        None => Run::End(unsaved(handled)),
    }
}

async fn settle<S: Store, R: Body, E>(
    shared: &Shared<S>,
    asked: &ClaimRequest,
    Owned { claim, attempt, place }: Owned<S::Claim>,
    handled: Handled<R, E>,
) -> Run<R, E> {
    match handled {
        Handled::Answer(answer) => answer.settle(shared, asked, (claim, &attempt), place.as_ref()).await,
        // The claim is dropped and with it the key; the transaction follows when its holder lets go.
        Handled::Held(error) => Run::End(End::Reply(reply::failed(&error))),
        // What the settlement says is logged by the store; the caller gets what the handler did.
        Handled::ServiceError(error) => {
            let _ = claim.settle(Settlement::of_failure(&attempt)).await;
            Run::End(End::Error(error))
        }
        Handled::Panicked(payload) => {
            emit(Event::Panicked);
            let _ = claim.settle(Settlement::of_failure(&attempt)).await;
            Run::End(End::Panic(payload))
        }
    }
}

/// The claim is gone with the task that cared for it: the client gets what the handler did, and the lease ends by
/// itself (H35).
fn unsaved<R: Body, E>(handled: Handled<R, E>) -> End<R, E> {
    emit(Event::Unsaved);
    match handled {
        Handled::Answer(answer) => End::Reply(answer.into_reply()),
        Handled::Held(error) => End::Reply(reply::failed(&error)),
        Handled::ServiceError(error) => End::Error(error),
        Handled::Panicked(payload) => End::Panic(payload),
    }
}

/// Tells of a run that was dropped before its settlement (case T07).
struct Unfinished;

impl Unfinished {
    fn finished(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        emit(Event::Dropped);
    }
}
