//! A guarded request in its own future: body, fingerprint, and who else is at it. From the claim on it is a story
//! (H25).

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::config::{Config, EndpointKey};
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

/// The whole way of a guarded request. `scope` is known where the head holds the key.
pub(super) async fn run<S, Svc, B, R>(
    shared: Arc<Shared<S>>,
    inner: Svc,
    (parts, body): (Box<Parts>, B),
    wire: Wire,
    found: Option<FoundKey>,
    scope: Option<ScopeId>,
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
    let config = &shared.config;
    let (data, trailers) = match request::read(body, config.body_limit).await {
        Ok(read) => read,
        Err(kind) => return Ok(Reply::refused(kind).dress(config, wire, found.and_then(|found| found.field))),
    };
    let found = match found {
        Some(found) => Some(found),
        None => match config.key_source.in_request(&parts, &data).and_then(|found| ruled(config, found)) {
            Ok(found) => found,
            Err(_) => return Ok(Reply::refused(ProblemKind::MalformedKey).into_response(config, wire)),
        },
    };
    let Some(FoundKey { key, field: echo }) = found else {
        if config.key_required {
            return Ok(Reply::refused(ProblemKind::MissingKey).into_response(config, wire));
        }
        let request = rebuild((parts, data, trailers));
        return Box::pin(keyless::run(inner, request, shared.store.unkeyed(), config, wire)).await;
    };
    let Some(scope) = scope.or_else(|| config.scope.of(&parts)) else {
        return Ok(Reply::refused(ProblemKind::ScopeUnavailable).dress(config, wire, echo));
    };
    let claim = question(config, &parts, &data, (scope, key));
    if let Some(reply) = meet::cached(&shared, &claim) {
        return Ok(reply.dress(config, wire, echo));
    }
    let until = meet::patience(&shared);
    let request = Some((parts, data, trailers));
    let mut story = Box::new(Story { shared: Arc::clone(&shared), inner, claim, wire, seat: None, until, request });
    let ticket = match meet::alone(&shared, &story.claim) {
        Some(ticket) => ticket,
        None => {
            let met = Box::pin(meet::meet(&shared, &story.claim, until)).await;
            match met {
                Met::Reply(reply) => return Ok(reply.dress(config, wire, echo)),
                Met::Ticket(ticket, seat) => {
                    story.seat = seat;
                    ticket
                }
            }
        }
    };
    match pursue(&shared, story, ticket, until).await {
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

/// Tells the story, again and again where the request runs in another process and this one may wait.
async fn pursue<S, Svc, B, R>(
    shared: &Shared<S>,
    mut story: Box<Story<S, Svc>>,
    mut ticket: Ticket,
    until: Option<Instant>,
) -> End<R, Svc::Error>
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
        let busy = match tell(shared, story, ticket).await {
            Told::End(end) => return end,
            Told::Busy(busy) => busy,
        };
        let Busy { story: told, ticket: kept, retry_after } = busy;
        let pause = retry_after.map_or_else(|| pause(turn, &told.claim), |said| said.max(SHORTEST_PAUSE));
        let again = Instant::now().checked_add(pause);
        match (again, until) {
            (Some(again), Some(until)) if again <= until && told.seat.is_some() => sleep_until(again).await,
            // The ticket is dropped here: the next in the queue goes on asking.
            _ => return End::Reply(reply::in_progress(retry_after)),
        }
        (story, ticket) = (told, kept);
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
async fn tell<S, Svc, B, R>(
    shared: &Shared<S>,
    story: Box<Story<S, Svc>>,
    ticket: Ticket,
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
    if !shared.config.detached {
        return Box::pin(story.tell(ticket)).await;
    }
    match shared.room.tasks.run(story.tell(ticket)).await {
        Ok(told) => told,
        Err(Detached::Panicked(payload)) => Told::End(End::Panic(payload)),
        // The process is going down with the story half told.
        Err(Detached::Cancelled) => Told::End(End::Reply(Reply::refused(ProblemKind::NotRecorded))),
    }
}
