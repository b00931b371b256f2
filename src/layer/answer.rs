//! The handler's answer: read whole where it is to be kept, and settled before its first byte leaves (H33, H40).

use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body;
use tokio::time::Instant;

use super::body::ResponseBody;
use super::collect::{Collected, Collector};
use super::config::Config;
use super::grpc::{self, Wire};
use super::heartbeat::Held;
use super::inflight::{Place, Ticket};
use super::reply::{self, Reply};
use super::story::{End, Run};
use super::within::within;
use super::{Shared, late};
use crate::attempt::Attempt;
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::policy::{Decision, Meaning, Outcome, Retention};
use crate::problem::{Conflicted, Problem};
use crate::record::{Answer, AnswerBody, Record};
use crate::series;
use crate::store::{Claim, ClaimRequest, Kept, Settled, Settlement};

/// What came of the handler.
pub(super) enum Handled<R: Body, E> {
    Answer(Box<HandledAnswer<R>>),
    /// It returned with the transaction still out.
    Held(Error),
    ServiceError(E),
    Panicked(Box<dyn Any + Send>),
}

/// An answer with its body as far as it was read.
pub(super) struct HandledAnswer<R: Body> {
    parts: Parts,
    meaning: Meaning,
    body: ReadBody<R>,
}

enum ReadBody<R: Body> {
    /// Not read: nothing of it is kept.
    Untouched(R),
    Whole(Bytes, Option<HeaderMap>),
    /// Longer or slower than what is kept.
    Rest(VecDeque<Bytes>, Pin<Box<R>>),
    Broken(VecDeque<Bytes>, R::Error),
}

/// Takes the transaction back and reads as much of the answer as is to be kept.
pub(super) async fn read<C: Claim, R: Body, E>(
    config: &Config,
    (wire, attempt): (Wire, &Attempt),
    method: Method,
    held: &mut Held<C>,
    response: Response<R>,
) -> Handled<R, E> {
    if let Err(error) = held.take_back() {
        return Handled::Held(error);
    }
    let (parts, body) = response.into_parts();
    // Once for all questions: a handler that has answered dispatches nothing any more.
    let is_dispatched = attempt.is_dispatched();
    let meaning = match parts.extensions.get::<Problem>() {
        // The refusal of a layer further in: "in progress" is no decision about the operation (H42).
        Some(_) => Some(Meaning::of_failure(is_dispatched)),
        None => wire.outcome(&config.policy, &parts, is_dispatched),
    };
    let as_it_comes = meaning.is_some_and(goes_as_it_comes)
        || is_stream(&method, &parts, body.size_hint().lower(), config.answer_limit);
    let body = if as_it_comes {
        ReadBody::Untouched(body)
    } else {
        read_whole(body, config.answer_limit, config.buffer_for).await
    };
    // The status of a gRPC answer may come last, or later than anybody waits: then it is done, and not kept (H36).
    let meaning = match (&body, meaning) {
        (ReadBody::Broken(..), _) => Meaning::of_failure(is_dispatched),
        (_, Some(meaning)) => meaning,
        (ReadBody::Whole(_, trailers), None) => {
            grpc::outcome_of_trailers(&config.policy, trailers.as_ref(), is_dispatched)
        }
        (ReadBody::Untouched(_) | ReadBody::Rest(..), None) => grpc::presumed(&parts, is_dispatched),
    };
    Handled::Answer(Box::new(HandledAnswer { parts, meaning, body }))
}

/// Whether nothing of the body is kept, whatever its length.
fn goes_as_it_comes(meaning: Meaning) -> bool {
    match meaning {
        Meaning::Outcome(outcome) => outcome.is_streaming() || outcome.decision() == Decision::Abandon,
        Meaning::Unknown => true,
    }
}

async fn read_whole<R: Body>(body: R, limit: usize, buffer_for: Duration) -> ReadBody<R> {
    if body.is_end_stream() {
        return ReadBody::Whole(Bytes::new(), None);
    }
    let mut collector = Collector::new(body);
    match within!(buffer_for, collector.collect(limit)) {
        Ok(Collected::Whole(data, trailers)) => ReadBody::Whole(data, trailers),
        Ok(Collected::Broken(error)) => ReadBody::Broken(collector.read, error),
        Ok(Collected::TooLarge) | Err(_) => ReadBody::Rest(collector.read, collector.body),
    }
}

/// Answers that are sent as they come, whatever their length (H40).
fn is_stream(method: &Method, parts: &Parts, least_length: u64, limit: usize) -> bool {
    const STREAMS: [&str; 5] = [
        "text/event-stream",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "multipart/x-mixed-replace",
    ];
    let essence = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| value.split(';').next().unwrap_or_default().trim());
    parts.status == StatusCode::SWITCHING_PROTOCOLS
        || method == Method::CONNECT
        || least_length > limit as u64
        || essence.is_some_and(|essence| STREAMS.iter().any(|stream| essence.eq_ignore_ascii_case(stream)))
}

/// What follows a settlement that the store has recorded.
struct Plan {
    event: Event,
    /// The handler asks to be run again.
    conflicted: bool,
    /// For those who wait, and for the cache.
    record: Option<Arc<Record>>,
    waited_for: bool,
    /// When the store was asked, where there is a cache.
    asked_at: Option<Instant>,
}

/// What the store will have of it.
fn record(asked: &ClaimRequest, settlement: &Settlement) -> Option<Record> {
    match settlement {
        Settlement::Commit(kept) | Settlement::Refuse(kept) => {
            Some(Record { fingerprint: *asked.fingerprint(), answer: kept.answer.clone() })
        }
        Settlement::Abandon | Settlement::Unknown => None,
    }
}

impl<R: Body> HandledAnswer<R> {
    /// Settles the claim and gives the reply.
    pub(super) async fn settle<S, C: Claim, E>(
        self: Box<Self>,
        (shared, asked, ticket): (&Shared<S>, &ClaimRequest, &Ticket),
        claim: C,
        attempt: Attempt,
    ) -> Run<R, E> {
        let is_lease = claim.lease().is_some() || claim.fence().is_some();
        let (settlement, plan) = self.plan(shared, asked, ticket);
        let watch = series::Stopwatch::start();
        let settled = claim.settle(settlement).await;
        let outcome = match &settled {
            Ok(Settled::Recorded) => "recorded",
            Ok(Settled::Superseded(_)) => "superseded",
            Err(_) => "error",
        };
        watch.settled(outcome, shared.config.route);
        self.settled((shared, asked, ticket), plan, settled, is_lease.then_some(attempt))
    }

    fn plan<S>(&self, shared: &Shared<S>, asked: &ClaimRequest, ticket: &Ticket) -> (Settlement, Plan) {
        let settlement = self.settlement(&shared.config, asked);
        let conflicted =
            matches!(settlement, Settlement::Abandon) && self.parts.extensions.get::<Conflicted>().is_some();
        let event = match &settlement {
            Settlement::Commit(kept) | Settlement::Refuse(kept) => {
                if matches!(kept.answer.body, AnswerBody::NotKept) {
                    shared.config.of().emit(Event::NotKept);
                }
                Event::Executed
            }
            Settlement::Abandon => Event::Abandoned,
            Settlement::Unknown => Event::OutcomeUnknown,
        };
        // Those who wait get the record just settled, without asking the store.
        let waited_for = ticket.place().is_some_and(Place::has_queue);
        let cached = shared.config.replay_cache.is_some();
        let record = if waited_for || cached { record(asked, &settlement).map(Arc::new) } else { None };
        (settlement, Plan { event, conflicted, record, waited_for, asked_at: cached.then(Instant::now) })
    }

    /// `lease`: the attempt, where it holds one.
    fn settled<S, E>(
        self,
        (shared, asked, ticket): (&Shared<S>, &ClaimRequest, &Ticket),
        plan: Plan,
        settled: Result<Settled, Error>,
        lease: Option<Attempt>,
    ) -> Run<R, E> {
        let reply = match settled {
            Ok(Settled::Recorded) => {
                if let Some(record) = plan.record {
                    if let (Some(cache), Some(asked_at)) = (&shared.config.replay_cache, plan.asked_at) {
                        cache.keep(asked.lookup().digest(), Arc::clone(&record), asked_at);
                    }
                    if let Some(place) = ticket.place().filter(|_| plan.waited_for) {
                        place.settled(|| record);
                    }
                }
                shared.config.of().emit(plan.event);
                self.into_reply()
            }
            Ok(Settled::Superseded(verdict)) => reply::of_verdict(verdict),
            Err(error) => match lease {
                // The work is done and no transaction can undo it: the client gets its answer, and the key is held
                // until it is recorded or its lease ends (H35).
                Some(attempt) if error.kind() != ErrorKind::LeaseLost => {
                    shared.config.of().emit_error(Event::Unsaved, &error);
                    if let Some(control) = attempt.control() {
                        let settlement = self.settlement(&shared.config, asked);
                        shared.room.tasks.detach(late::record(Arc::clone(control), settlement));
                    }
                    self.into_reply()
                }
                _ if error.kind() == ErrorKind::Conflict => return Run::Conflicted(reply::failed(&error)),
                _ => reply::failed(&error),
            },
        };
        if plan.conflicted { Run::Conflicted(reply) } else { Run::End(End::Reply(reply)) }
    }

    fn settlement(&self, config: &Config, asked: &ClaimRequest) -> Settlement {
        let Meaning::Outcome(outcome) = self.meaning else { return Settlement::Unknown };
        match outcome.decision() {
            Decision::Commit => Settlement::Commit(self.kept(config, asked, outcome)),
            Decision::Refuse => Settlement::Refuse(self.kept(config, asked, outcome)),
            Decision::Abandon => Settlement::Abandon,
        }
    }

    /// What the store keeps of it.
    fn kept(&self, config: &Config, asked: &ClaimRequest, outcome: Outcome) -> Kept {
        let (body, trailers) = match &self.body {
            ReadBody::Whole(data, trailers) if outcome.keeps_body() => {
                (AnswerBody::Kept(data.clone()), trailers.as_ref().map(|trailers| config.headers.filter(trailers)))
            }
            _ => (AnswerBody::NotKept, None),
        };
        let headers = config.headers.filter(&self.parts.headers);
        let answer = Answer { status: self.parts.status, headers, body, trailers };
        let retention = self.parts.extensions.get::<Retention>().map_or(asked.retention(), |retention| retention.0);
        Kept { answer, retention }
    }

    /// The first client gets everything, kept or not.
    pub(super) fn into_reply(self) -> Reply<R> {
        let body = match self.body {
            ReadBody::Untouched(body) => ResponseBody::from(body),
            ReadBody::Whole(data, trailers) => ResponseBody::whole(data, trailers),
            ReadBody::Rest(read, body) => ResponseBody::rest(read, body),
            ReadBody::Broken(read, error) => ResponseBody::broken(read, error),
        };
        Reply::Fresh(Response::from_parts(self.parts, body))
    }
}
