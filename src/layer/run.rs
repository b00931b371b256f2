//! A guarded request in its own future: body, fingerprint, and who else is at it. From the claim on it is a story
//! (H25).

use std::panic::resume_unwind;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tokio::time::timeout;
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::config::{Config, EndpointKey};
use super::inflight::{Meeting, Ticket, Word};
use super::reply::{self, Reply};
use super::story::{End, Story};
use super::tasks::Detached;
use super::{Shared, keyless, request};
use crate::events::{Event, emit};
use crate::extract;
use crate::fingerprint::{Match, RequestView};
use crate::key::{FoundKey, KeyError};
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::{Judgement, Retention, State, judge};
use crate::problem::ProblemKind;
use crate::record::Record;
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
    request: Request<B>,
    found: Option<FoundKey>,
    scope: Option<ScopeId>,
) -> Result<Response<ResponseBody<R>>, Svc::Error>
where
    S: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    Svc::Future: Send,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    let config = &shared.config;
    let (parts, body) = request.into_parts();
    let (data, trailers) = match request::read(body, config.body_limit).await {
        Ok(read) => read,
        Err(kind) => return Ok(Reply::refused(kind).dress(config, found.and_then(|found| found.field))),
    };
    let found = match found {
        Some(found) => Some(found),
        None => match config.key_source.in_request(&parts, &data).and_then(|found| ruled(config, found)) {
            Ok(found) => found,
            Err(_) => return Ok(Reply::refused(ProblemKind::MalformedKey).into_response(&config.renderer)),
        },
    };
    let Some(FoundKey { key, field: echo }) = found else {
        if config.key_required {
            return Ok(Reply::refused(ProblemKind::MissingKey).into_response(&config.renderer));
        }
        let request = Request::from_parts(parts, RequestBody::read(data, trailers));
        return keyless::run(inner, request, shared.store.unkeyed(), config).await;
    };
    let Some(scope) = scope.or_else(|| config.scope.of(&parts)) else {
        return Ok(Reply::refused(ProblemKind::ScopeUnavailable).dress(config, echo));
    };
    let path = extract::original_path(&parts);
    let endpoint = match config.endpoint {
        EndpointKey::Path => Endpoint::new(&parts.method, path),
        EndpointKey::MatchedPath => Endpoint::new(&parts.method, extract::matched_path(&parts).unwrap_or(path)),
        EndpointKey::Ignored => Endpoint::none(),
    };
    let view = RequestView {
        method: &parts.method,
        path,
        query: extract::original_query(&parts),
        headers: &parts.headers,
        body: &data,
    };
    let fingerprint = config.fingerprinter.fingerprint(&view);
    let previous = config.previous_fingerprinters.iter().map(|previous| previous.fingerprint(&view)).collect();
    let retention = parts.extensions.get::<Retention>().map_or(config.retention, |retention| retention.0);
    let lookup = LookupKey::new(scope, key, endpoint);
    let claim = ClaimRequest::new(lookup, fingerprint, retention).with_previous(previous);
    let reply = match meet(&shared, &claim).await {
        Met::Reply(reply) => reply,
        Met::Ticket(ticket) => {
            let story = Story { shared: Arc::clone(&shared), inner, claim, parts, data, trailers };
            match tell(&shared, story, ticket).await {
                End::Reply(reply) => reply,
                End::Error(error) => return Err(error),
                End::Panic(payload) => resume_unwind(payload),
            }
        }
    };
    Ok(reply.dress(config, echo))
}

enum Met<R: Body> {
    Reply(Reply<R>),
    Ticket(Ticket),
}

/// Meets the other requests of this process: gives a reply, or the right to ask the store (H46). However often the one
/// who asks changes, the wait is as long as a claim may take; then, in doubt, 409.
async fn meet<S: Store, R: Body>(shared: &Shared<S>, claim: &ClaimRequest) -> Met<R> {
    let met = async {
        loop {
            match shared.room.inflight.meet(claim.lookup().digest()) {
                Meeting::Ask(ticket) => return Met::Ticket(ticket),
                Meeting::Running(owner) => return Met::Reply(heed(claim, &Word::Running(owner)).unwrap_or_else(busy)),
                // Whoever asked may get an error, go, or learn nothing of this request: then the next one asks.
                Meeting::Wait(word) => {
                    if let Some(reply) = word.await.ok().and_then(|word| heed(claim, &word)) {
                        return Met::Reply(reply);
                    }
                }
            }
        }
    };
    timeout(shared.config.claim_timeout, met).await.unwrap_or_else(|_| Met::Reply(busy()))
}

fn busy<R: Body>() -> Reply<R> {
    reply::in_progress(None)
}

/// What somebody else's verdict means for this request, by the same decision as the store's own (S1).
fn heed<R: Body>(claim: &ClaimRequest, word: &Word) -> Option<Reply<R>> {
    let judged = |state, owner| {
        let compared = claim.compare(owner);
        if compared == Match::OtherProfile {
            emit(Event::OtherProfile);
        }
        judge(state, compared)
    };
    match word {
        Word::Running(owner) => Some(match judged(State::Running, owner) {
            Judgement::Mismatch => reply::mismatch(),
            _ => busy(),
        }),
        Word::Committed(record) => {
            let Record { fingerprint, answer } = record.as_ref();
            Some(match judged(State::Completed, fingerprint) {
                Judgement::Mismatch => reply::mismatch(),
                _ => Reply::stored(answer.clone()),
            })
        }
        // Equal in all profiles: one that is equal in the current one may differ in the one that was compared (H18).
        Word::Mismatch(asker) => (asker == claim.fingerprints()).then(reply::mismatch),
        Word::InProgress(asker, wait) => (asker == claim.fingerprints()).then(|| reply::in_progress(*wait)),
    }
}

/// Tells the story on a task of its own, or in place where a dropped request shall drop its handler.
async fn tell<S, Svc, B, R>(shared: &Shared<S>, story: Story<S, Svc>, ticket: Ticket) -> End<R, Svc::Error>
where
    S: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    Svc::Future: Send,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    R: Body + Send + 'static,
    R::Data: Send,
    R::Error: Send,
{
    if !shared.config.detached {
        return story.tell(ticket).await;
    }
    match shared.room.tasks.run(story.tell(ticket)).await {
        Ok(end) => end,
        Err(Detached::Panicked(payload)) => End::Panic(payload),
        // The process is going down with the story half told.
        Err(Detached::Cancelled) => End::Reply(Reply::refused(ProblemKind::NotRecorded)),
    }
}

/// A request as the handler gets it.
pub(super) fn rebuild<B>(parts: Parts, data: bytes::Bytes, trailers: Option<HeaderMap>) -> Request<RequestBody<B>> {
    Request::from_parts(parts, RequestBody::read(data, trailers))
}
