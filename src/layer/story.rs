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
use super::heartbeat::{Held, Released};
use super::inflight::{Seat, Ticket, Word};
use super::reply::{self, Reply};
use super::run::Head;
use super::unwind::Caught;
use super::within::within;
use super::{GuardedBy, Room, Shared, keyless};
use crate::attempt::{Attempt, overdue};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, Of};
use crate::series;
use crate::store::{Claim, ClaimRequest, Settlement, Store, Verdict};

/// A request that is about to be claimed.
pub(super) struct Story<S: Store, Svc> {
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
    /// The right to ask.
    pub(super) ticket: Ticket,
    /// What the store has answered: until the handler runs, or does not.
    pub(super) claimed: Option<S::Claim>,
    pub(super) failed: Option<Error>,
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
pub(super) enum Told<S: Store, Svc, R: Body, E> {
    End(End<R, E>),
    /// The request runs in another process, and this one may wait: the story can be told again.
    Busy(Busy<S, Svc>),
}

impl<S: Store, Svc, R: Body, E> Told<S, Svc, R, E> {
    pub(super) fn ended(self) -> Result<End<R, E>, Busy<S, Svc>> {
        match self {
            Self::End(end) => Ok(end),
            Self::Busy(busy) => Err(busy),
        }
    }
}

/// A story that has to wait for another process.
pub(super) struct Busy<S: Store, Svc> {
    pub(super) story: Box<Story<S, Svc>>,
    /// When the store wants to be asked again, if it says so.
    pub(super) retry_after: Option<Duration>,
}

/// A claimed key: the claim in its care, and the attempt that its handler sees.
struct Owned<C> {
    held: Held<C>,
    attempt: Attempt,
}

/// How one run ends.
pub(super) enum Run<R: Body, E> {
    End(End<R, E>),
    /// The database gave the transaction up; the reply is for when it is not run again.
    Conflicted(Reply<R>),
}

impl<S: Store, Svc> Story<S, Svc> {
    /// What is decided between two waits is decided in functions: see [`run`](super::run::run).
    pub(super) async fn tell<B, R>(mut self: Box<Self>) -> Told<S, Svc, R, Svc::Error>
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
            let verdict = ask(&self.shared, &self.claim).await;
            series::claimed(named(&verdict), self.shared.config.route, asked_at.elapsed());
            self = match self.heed(verdict) {
                Ok(story) => story,
                Err(told) => return told,
            };
            task_of_its_own().await;
            if self.failed.is_some() {
                return Told::End(Box::pin(self.without_store()).await);
            }
            let Some((request, method, owned)) = self.prepare(asked_at, reruns == 0) else {
                // Answered so late that another attempt may be running: this one must not begin (S20).
                if let Some(claim) = self.claimed.take() {
                    let _ = Box::pin(claim.settle(Settlement::Abandon)).await;
                }
                return Told::End(End::Reply(reply::failed(&overdue())));
            };
            let (unfinished, running) = (Unfinished(self.shared.config.of()), series::Running::begin());
            // The call itself may panic, before there is a future.
            let answered = Caught::calling(|| self.inner.call(request)).await;
            // Boxed, as is what happens seldom, so that a request whose handler runs is no larger than it must be.
            let run = Box::pin(conclude((&self.shared, &self.claim, &self.ticket), self.wire, method, owned, answered));
            let run = run.await;
            unfinished.finished();
            drop(running);
            match run {
                Run::End(end) => return Told::End(end),
                Run::Conflicted(reply) if reruns == 0 => return Told::End(End::Reply(reply)),
                Run::Conflicted(_) => {
                    reruns -= 1;
                    self.claim = self.claim.again();
                }
            }
        }
    }

    /// What the verdict means: the story goes on with its claim or its error, or this is the end of it.
    #[allow(clippy::result_large_err, reason = "the end of a story is no error, and passed on once")]
    fn heed<R: Body, E>(
        mut self: Box<Self>,
        verdict: Result<Verdict<S::Claim>, Error>,
    ) -> Result<Box<Self>, Told<S, Svc, R, E>>
    where
        Svc: Clone,
    {
        match verdict {
            Ok(Verdict::Claimed(claim)) => self.claimed = Some(claim),
            Ok(Verdict::InProgress { retry_after }) if self.shared.config.wait.is_some() => {
                self.ticket.elsewhere(self.claim.fingerprints());
                // A service that was asked whether it is ready may keep a place for the call: a clone has none.
                self.inner = self.inner.clone();
                self.seat = self.seat.or_else(|| self.shared.room.inflight.seat(self.shared.config.caps));
                return Err(Told::Busy(Busy { story: self, retry_after }));
            }
            Ok(verdict) => {
                share(&self.ticket, &verdict, &self.claim);
                return Err(Told::End(End::Reply(reply::of_verdict(verdict))));
            }
            Err(error) => self.failed = Some(error),
        }
        Ok(self)
    }

    /// The request with what the handler may use, its method, and the claim in its care. `None`: its lease is over.
    #[allow(clippy::type_complexity, reason = "three things that go three ways")]
    fn prepare<B>(
        &mut self,
        asked_at: Instant,
        is_last: bool,
    ) -> Option<(Request<RequestBody<B>>, Method, Owned<S::Claim>)> {
        let claim = self.claimed.as_ref()?;
        let attempt = Attempt::new(&self.claim, claim, asked_at.into_std());
        if attempt.is_overdue(Instant::now().into_std()) {
            return None;
        }
        self.seat = None;
        self.ticket.running(*self.claim.fingerprint());
        let saved = if is_last { self.request.take() } else { self.request.clone() };
        let Some(saved) = saved else { unreachable!("the last run takes the request, and there is none after it") };
        let mut request = rebuild(saved, &self.shared.room);
        claim.attach(request.extensions_mut());
        request.extensions_mut().insert(attempt.clone());
        let method = request.method().clone();
        let claim = self.claimed.take()?;
        let held = Held::new(claim, &attempt, self.ticket.place().cloned());
        Some((request, method, Owned { held, attempt }))
    }

    /// A failed claim never reaches the handler (H23), unless the service has asked for it by name.
    async fn without_store<B, R>(self: Box<Self>) -> End<R, Svc::Error>
    where
        Svc: Service<Request<RequestBody<B>>, Response = Response<R>>,
        B: Body,
        R: Body,
    {
        let Self { shared, inner, claim, wire, seat, request, ticket, failed, .. } = *self;
        let Some(error) = failed else { return End::Reply(reply::in_progress(None)) };
        // No verdict: the next one asks (H46), also while this one runs unprotected.
        drop(ticket);
        let config = &shared.config;
        // Whoever has waited knows of another request, which may still run.
        let may_run = config.unprotected_without_store
            && seat.is_none()
            && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full);
        let Some(saved) = request.filter(|_| may_run) else {
            return End::Reply(reply::failed(&error));
        };
        config.of().emit(Event::RanUnprotected);
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

/// What a claim was told, as a label.
fn named<C>(verdict: &Result<Verdict<C>, Error>) -> &'static str {
    match verdict {
        Ok(Verdict::Claimed(_)) => "claimed",
        Ok(Verdict::Replay(_)) => "replay",
        Ok(Verdict::Mismatch) => "mismatch",
        Ok(Verdict::InProgress { .. }) => "in_progress",
        Ok(Verdict::Orphaned) => "orphaned",
        Ok(Verdict::Unknown) => "unknown",
        Err(_) => "error",
    }
}

/// Tells those who waited for the verdict what they may conclude from it.
fn share<C>(ticket: &Ticket, verdict: &Verdict<C>, claim: &ClaimRequest) {
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
    (shared, asked, ticket): (&Shared<S>, &ClaimRequest, &Ticket),
    wire: Wire,
    method: Method,
    Owned { mut held, attempt }: Owned<S::Claim>,
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
    let claim = match held.release() {
        Released::Claim(claim) => Some(claim),
        Released::Beating(heartbeat) => heartbeat.stop().await,
    };
    let Some(claim) = claim else { return Run::End(unsaved(shared.config.of(), handled)) };
    let failed = match handled {
        Handled::Answer(answer) => return answer.settle((shared, asked, ticket), claim, attempt).await,
        // The claim is dropped and with it the key; the transaction follows when its holder lets go.
        Handled::Held(error) => return Run::End(End::Reply(reply::failed(&error))),
        Handled::ServiceError(error) => End::Error(error),
        Handled::Panicked(payload) => {
            shared.config.of().emit(Event::Panicked);
            End::Panic(payload)
        }
    };
    // What the settlement says is logged by the store; the caller gets what the handler did.
    let _ = Box::pin(claim.settle(Settlement::of_failure(&attempt))).await;
    Run::End(failed)
}

/// The claim is gone with the task that cared for it: the client gets what the handler did, and the lease ends by
/// itself (H35).
fn unsaved<R: Body, E>(of: Of<'_>, handled: Handled<R, E>) -> End<R, E> {
    of.emit(Event::Unsaved);
    match handled {
        Handled::Answer(answer) => End::Reply(answer.into_reply()),
        Handled::Held(error) => End::Reply(reply::failed(&error)),
        Handled::ServiceError(error) => End::Error(error),
        Handled::Panicked(payload) => End::Panic(payload),
    }
}

/// Tells of a run that was dropped before its settlement (case T07).
struct Unfinished(Of<'static>);

impl Unfinished {
    fn finished(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.emit(Event::Dropped);
    }
}
