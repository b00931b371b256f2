//! A guarded request in its own future: body, fingerprint, and who else is at it. From the claim on it is a story
//! (H25).

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::body::{RequestBody, ResponseBody, Trailers};
use super::config::{Config, EndpointKey};
use super::future::Boxed;
use super::grpc::Wire;
use super::inflight::Ticket;
use super::meet::{self, Met};
use super::reply::{self, Reply};
use super::story::{Busy, End, Story, Told, rebuild};
use super::tasks::Detached;
use super::{Shared, keyless, request};
use crate::extract;
use crate::fingerprint::RequestView;
use crate::key::{FoundKey, Key, KeyError};
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::Retention;
use crate::problem::ProblemKind;
use crate::scope::ScopeId;
use crate::store::{ClaimRequest, Store};

/// The key in the head, by the layer's rules.
pub(super) fn head_key(config: &Config, parts: &Parts) -> Result<Option<FoundKey>, KeyError> {
    ruled(config, config.key_source.in_head(parts)?)
}

fn ruled(config: &Config, found: Option<FoundKey>) -> Result<Option<FoundKey>, KeyError> {
    found.map(|found| Ok(FoundKey { key: config.key_rules.check(found.key)?, field: found.field })).transpose()
}

/// A guarded request but for its body.
#[derive(Clone)]
pub(super) struct Head {
    pub(super) parts: Parts,
    pub(super) wire: Wire,
    pub(super) found: Option<FoundKey>,
    /// Known where the head holds the key.
    pub(super) scope: Option<ScopeId>,
}

/// The whole way of a guarded request. What is decided between two waits is decided in functions, since a future keeps
/// room for all that was borrowed in it, and many of them wait at once.
pub(super) async fn run<S, Svc, B, R>(
    shared: Arc<Shared<S>>,
    inner: Svc,
    head: Box<Head>,
    body: B,
) -> Result<Response<ResponseBody<R>>, Svc::Error>
where
    S: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    let read = request::read(body, shared.config.body_limit).await;
    let (mut story, echo) = match begin(&shared, inner, head, read) {
        Ok(begun) => begun,
        Err(other) => return other.await,
    };
    let in_place = match meet::alone(&shared, &story.claim) {
        Some(ticket) => {
            story.ticket = ticket;
            true
        }
        None => match Box::pin(meet::meet(&shared, &story.claim, story.until)).await {
            Met::Reply(reply) => return Ok(reply.dress(&shared.config, story.wire, echo)),
            Met::Ticket(ticket, seat) => {
                (story.ticket, story.seat) = (ticket, seat);
                false
            }
        },
    };
    let wire = story.wire;
    let busy = match tell(&shared, story, in_place).await.ended() {
        Ok(end) => return finish(end, &shared.config, wire, echo),
        Err(busy) => busy,
    };
    let end = Box::pin(pursue(&shared, busy)).await;
    finish(end, &shared.config, wire, echo)
}

/// A key's field as it was received.
type Echo = Option<(HeaderName, HeaderValue)>;

/// The story of a request whose body has been read. `Err`: it has none, and this is its answer.
#[allow(clippy::type_complexity, reason = "a story with all its types, or a future")]
fn begin<S, Svc, B, R>(
    shared: &Arc<Shared<S>>,
    inner: Svc,
    mut head: Box<Head>,
    read: Result<(Bytes, Trailers), ProblemKind>,
) -> Result<(Box<Story<S, Svc>>, Echo), Boxed<R, Svc::Error>>
where
    S: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    let (config, wire) = (&shared.config, head.wire);
    let answer = |reply: Reply<R>, echo| -> Boxed<R, Svc::Error> {
        Box::pin(std::future::ready(Ok(reply.dress(config, wire, echo))))
    };
    let found = head.found.take();
    let (data, trailers) = match read {
        Ok(read) => read,
        Err(kind) => return Err(answer(Reply::refused(kind), found.and_then(|found| found.field))),
    };
    let found = match found {
        Some(found) => Some(found),
        None => match config.key_source.in_request(&head.parts, &data).and_then(|found| ruled(config, found)) {
            Ok(found) => found,
            Err(_) => return Err(answer(Reply::refused(ProblemKind::MalformedKey), None)),
        },
    };
    let Some(FoundKey { key, field: echo }) = found else {
        if config.key_required {
            return Err(answer(Reply::refused(ProblemKind::MissingKey), None));
        }
        let (shared, request) = (Arc::clone(shared), rebuild((head, data, trailers), &shared.room));
        return Err(Box::pin(async move {
            keyless::run(inner, request, shared.store.unkeyed(), &shared.config, wire).await
        }));
    };
    let Some(scope) = head.scope.take().or_else(|| config.scope.of(&head.parts)) else {
        return Err(answer(Reply::refused(ProblemKind::ScopeUnavailable), echo));
    };
    let claim = question(config, &head.parts, &data, (scope, key));
    if let Some(reply) = meet::cached(shared, &claim) {
        return Err(answer(reply, echo));
    }
    let until = meet::patience(shared);
    let request = Some((head, data, trailers));
    let (shared, ticket) = (Arc::clone(shared), Ticket::without_place());
    let (seat, claimed, failed) = (None, None, None);
    Ok((Box::new(Story { shared, inner, claim, wire, seat, until, request, ticket, claimed, failed }), echo))
}

fn finish<R: Body, E>(end: End<R, E>, config: &Config, wire: Wire, echo: Echo) -> Result<Response<ResponseBody<R>>, E> {
    match end {
        End::Reply(reply) => Ok(reply.dress(config, wire, echo)),
        End::Error(error) => Err(error),
        End::Panic(payload) => resume_unwind(payload),
    }
}

/// What the store is asked.
fn question(config: &Config, parts: &Parts, data: &[u8], (scope, key): (ScopeId, Key)) -> ClaimRequest {
    let path = extract::original_path(parts);
    let endpoint = match config.endpoint {
        EndpointKey::Path => Endpoint::new(&parts.method, path),
        EndpointKey::MatchedPath => Endpoint::new(&parts.method, extract::matched_path(parts).unwrap_or(path)),
        EndpointKey::Ignored => Endpoint::none(),
    };
    let view = RequestView {
        method: &parts.method,
        path,
        query: extract::original_query(parts),
        headers: &parts.headers,
        body: data,
    };
    let fingerprint = config.fingerprinter.fingerprint(&view);
    let previous = config.previous_fingerprinters.iter().map(|previous| previous.fingerprint(&view)).collect();
    let retention = parts.extensions.get::<Retention>().map_or(config.retention, |retention| retention.0);
    let lookup = LookupKey::new(scope, key, endpoint);
    ClaimRequest::new(lookup, fingerprint, retention).with_previous(previous)
}

/// Tells the story again and again while the request runs in another process and this one may wait.
async fn pursue<S, Svc, B, R>(shared: &Shared<S>, mut busy: Busy<S, Svc>) -> End<R, Svc::Error>
where
    S: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    for turn in 0.. {
        let Busy { story, retry_after } = busy;
        let pause = retry_after.map_or_else(|| pause(turn, &story.claim), |said| said.max(SHORTEST_PAUSE));
        let again = Instant::now().checked_add(pause);
        match (again, story.until) {
            (Some(again), Some(until)) if again <= until && story.seat.is_some() => sleep_until(again).await,
            // The ticket is dropped here: the next in the queue goes on asking.
            _ => return End::Reply(reply::in_progress(retry_after)),
        }
        busy = match tell(shared, story, false).await.ended() {
            Ok(end) => return end,
            Err(busy) => busy,
        };
    }
    unreachable!("the pauses end the loop")
}

/// However soon a store says.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Between two questions: 0.1 s, doubled up to 1 s, each shortened by up to a half by a random byte, so that processes
/// which wait for one key do not ask in step.
fn pause(turn: u32, claim: &ClaimRequest) -> Duration {
    let full = Duration::from_millis(100 << turn.min(4)).min(Duration::from_secs(1));
    let byte = claim.token().as_bytes()[turn as usize % 4];
    full - full / 2 * u32::from(byte) / 255
}

/// Tells the story on a task of its own, or in place where a dropped request shall drop its handler.
///
/// A store of this process answers at once, and what is no claim needs no task. So a story may be told up to the verdict
/// before it gets one: nothing can drop it in between. Not where others wait for the verdict as well: whoever asks in
/// place is done before the next one could share it.
async fn tell<S, Svc, B, R>(
    shared: &Shared<S>,
    story: Box<Story<S, Svc>>,
    in_place: bool,
) -> Told<S, Svc, R, Svc::Error>
where
    S: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    Svc::Future: Send,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    let mut telling = Box::pin(story.tell());
    if !shared.config.detached {
        return telling.await;
    }
    // Whatever it waits for, its task will wake it.
    if in_place && let Poll::Ready(told) = telling.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return told;
    }
    match shared.room.tasks.run(telling).await {
        Ok(told) => told,
        Err(Detached::Panicked(payload)) => Told::End(End::Panic(payload)),
        // The process is going down with the story half told.
        Err(Detached::Cancelled) => Told::End(End::Reply(Reply::refused(ProblemKind::NotRecorded))),
    }
}
