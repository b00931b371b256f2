//! What a handler's answer means for the operation: Commit, Refuse or Abandon (H31, H32).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use http::response::Parts;

use super::status;

/// What becomes of the handler's writes and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Keep writes and answer: later requests with the key get this answer.
    Commit,
    /// Keep the answer, undo the writes: a decision about the operation that holds for late duplicates too.
    Refuse,
    /// Keep nothing: the key is free and the next attempt is judged afresh.
    Abandon,
}

/// A handler's own word on its answer. As an extension of the response it overrides the layer's [`Policy`];
/// with the feature `axum` it is also a response part: `(Outcome::refuse(), StatusCode::NOT_FOUND)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    decision: Decision,
    streaming: bool,
    body_kept: bool,
}

impl Outcome {
    const fn of(decision: Decision) -> Self {
        Self { decision, streaming: false, body_kept: true }
    }

    /// Keep writes and answer.
    #[must_use]
    pub const fn commit() -> Self {
        Self::of(Decision::Commit)
    }

    /// Keep the answer, undo the writes. For business rules that answer 400, 403, 404 or 422 and must hold for late
    /// duplicates.
    #[must_use]
    pub const fn refuse() -> Self {
        Self::of(Decision::Refuse)
    }

    /// Keep nothing and free the key.
    #[must_use]
    pub const fn abandon() -> Self {
        Self::of(Decision::Abandon)
    }

    /// Send the body as it comes, without buffering it: the writes are committed before the first byte, the answer is
    /// recorded as not kept, and a retry is told 410 `answer-not-kept` (H40).
    #[must_use]
    pub const fn streaming(mut self) -> Self {
        self.streaming = true;
        self
    }

    /// Do not store the body, for secrets that are shown once; a retry is told 410 `answer-not-kept` (H41).
    #[must_use]
    pub const fn without_body(mut self) -> Self {
        self.body_kept = false;
        self
    }

    /// What becomes of writes and answer.
    #[must_use]
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Whether the body is to be sent as it comes.
    #[must_use]
    pub const fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// Whether the body may be stored.
    #[must_use]
    pub const fn keeps_body(&self) -> bool {
        self.body_kept
    }
}

/// How long one operation's record is kept, counted from its acceptance (H44).
///
/// As an extension of the *request*, set by a middleware outside the layer, it replaces the layer's retention; as an
/// extension of the *response* it replaces both when the answer is stored (H3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention(pub Duration);

/// As an extension of a request, set by a middleware outside the layer: this request passes untouched (H3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unguarded;

/// What an answer means for the layer: what is to become of it, or that nobody can tell (S22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Outcome(Outcome),
    Unknown,
}

impl From<Option<Outcome>> for Meaning {
    fn from(outcome: Option<Outcome>) -> Self {
        outcome.map_or(Self::Unknown, Self::Outcome)
    }
}

impl Meaning {
    /// Of a handler that failed without an answer.
    pub(crate) fn of_failure(is_dispatched: bool) -> Self {
        if is_dispatched { Self::Unknown } else { Self::Outcome(Outcome::abandon()) }
    }
}

/// In the extensions of a guarded request without a key: what asks for one can say so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyless;

/// What an answer means where the handler does not say: a function of the response's head, and another one of the
/// status of a gRPC answer.
///
/// The default (H32): 2xx and 3xx commit; 402, 409 and 410 are decisions about the operation and refuse, unless they
/// carry `Retry-After`, which says that they will pass; every other 4xx and all 5xx abandon, since nothing was kept and
/// the next attempt may fare better.
///
/// For gRPC (H36): 0 commits; 3, 5, 6, 9 and 11 (invalid argument, not found, already exists, failed precondition, out
/// of range) refuse; all others abandon, and so does an answer without a status. What a policy says of HTTP is not asked
/// there: the head of a gRPC answer is 200 whatever became of the call.
#[derive(Clone)]
pub struct Policy {
    http: Arc<dyn Fn(&Parts) -> Outcome + Send + Sync>,
    grpc: Arc<dyn Fn(Option<i32>) -> Outcome + Send + Sync>,
    dispatched: Arc<Dispatched>,
}

/// What an answer means after a call to somebody else; `None`: nobody can tell.
type Dispatched = dyn Fn(&Parts) -> Option<Outcome> + Send + Sync;

impl Policy {
    /// A policy of your own. `f` is not asked where the response carries an [`Outcome`], and not for gRPC answers: see
    /// [`Policy::grpc`].
    pub fn from_fn(f: impl Fn(&Parts) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            http: Arc::new(f),
            grpc: Arc::new(|code| Outcome::of(by_grpc_code(code))),
            dispatched: Arc::new(|response| by_status_dispatched(response).map(Outcome::of)),
        }
    }

    /// Judges gRPC answers by their status code; `None` where the answer has none, or one that is no number. `f` is not
    /// asked where the response carries an [`Outcome`]. The body has been read by then: what `f` says of streaming has
    /// no effect.
    #[must_use]
    pub fn grpc(mut self, f: impl Fn(Option<i32>) -> Outcome + Send + Sync + 'static) -> Self {
        self.grpc = Arc::new(f);
        self
    }

    /// Judges the answers of handlers that have called somebody else: see
    /// [`Attempt::dispatching`](crate::Attempt::dispatching). `None`: what came of it is not known (S22). `f` is not
    /// asked where the response carries an [`Outcome`], and not for gRPC answers.
    ///
    /// The default: 2xx and 3xx commit; 408, 425, 429, all 5xx, and other 4xx with `Retry-After` are unknown; the rest
    /// refuse.
    #[must_use]
    pub fn after_dispatching(mut self, f: impl Fn(&Parts) -> Option<Outcome> + Send + Sync + 'static) -> Self {
        self.dispatched = Arc::new(f);
        self
    }

    /// The outcome of this answer: the handler's own word, else the policy's.
    #[must_use]
    pub fn outcome(&self, response: &Parts) -> Outcome {
        response.extensions.get::<Outcome>().copied().unwrap_or_else(|| (self.http)(response))
    }

    /// The outcome of a gRPC answer with this status code.
    #[must_use]
    pub fn grpc_outcome(&self, code: Option<i32>) -> Outcome {
        (self.grpc)(code)
    }

    /// The same for a handler that has called somebody else; `None` where what came of it is not known.
    #[must_use]
    pub fn dispatched_outcome(&self, response: &Parts) -> Option<Outcome> {
        response.extensions.get::<Outcome>().copied().or_else(|| (self.dispatched)(response))
    }

    /// The same for gRPC: 0 commits; cancelled, unknown, deadline exceeded, resource exhausted, aborted, internal,
    /// unavailable, data loss and no code at all are unknown; the rest refuse.
    #[must_use]
    pub fn dispatched_grpc_outcome(code: Option<i32>) -> Option<Outcome> {
        by_grpc_code_dispatched(code).map(Outcome::of)
    }
}

impl Policy {
    /// The policy of [`Profile::stripe`](crate::layer::Profile::stripe): as the default, but 424 and all 5xx refuse. An
    /// operation that failed stays failed for its key, unless the answer carries `Retry-After`.
    #[must_use]
    pub fn stripe() -> Self {
        Self::by_status(status::stripe)
    }

    /// An answer that says "later" is no decision: stored it would lose that field, and be final.
    fn by_status(decide: fn(StatusCode) -> Decision) -> Self {
        Self::from_fn(move |response| {
            let decision = decide(response.status);
            let passes = decision == Decision::Refuse && response.headers.contains_key(RETRY_AFTER);
            Outcome::of(if passes { Decision::Abandon } else { decision })
        })
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::by_status(status::ietf)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policy(..)")
    }
}

/// Whoever was called may have done it: only an answer that is a decision says otherwise.
fn by_status_dispatched(response: &Parts) -> Option<Decision> {
    match response.status.as_u16() {
        408 | 425 | 429 | 500.. => None,
        400..500 if response.headers.contains_key(RETRY_AFTER) => None,
        400..500 => Some(Decision::Refuse),
        _ => Some(Decision::Commit),
    }
}

fn by_grpc_code_dispatched(code: Option<i32>) -> Option<Decision> {
    match code {
        Some(0) => Some(Decision::Commit),
        Some(3 | 5 | 6 | 7 | 9 | 11 | 12 | 16) => Some(Decision::Refuse),
        _ => None,
    }
}

fn by_grpc_code(code: Option<i32>) -> Decision {
    match code {
        Some(0) => Decision::Commit,
        Some(3 | 5 | 6 | 9 | 11) => Decision::Refuse,
        _ => Decision::Abandon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H32, H42: a conflict of the moment, passed on from another service, must not become the final answer.
    #[test]
    fn an_answer_that_says_later_is_no_decision() {
        for policy in [Policy::default(), Policy::stripe()] {
            for status in 200..600 {
                let response = http::Response::builder().status(status).header(RETRY_AFTER, "1").body(()).unwrap();
                let decision = if status < 400 { Decision::Commit } else { Decision::Abandon };
                assert_eq!(policy.outcome(&response.into_parts().0).decision(), decision, "{status}");
            }
        }
    }

    // S22, case T16
    #[test]
    fn after_a_call_to_somebody_else_failures_are_unknown() {
        for status in 200..600 {
            let expected = match status {
                408 | 425 | 429 | 500..600 => None,
                400..500 => Some(Decision::Refuse),
                _ => Some(Decision::Commit),
            };
            let parts = http::Response::builder().status(status).body(()).unwrap().into_parts().0;
            let told = Policy::default().dispatched_outcome(&parts).map(|outcome| outcome.decision());
            assert_eq!(told, expected, "{status}");
        }
        for code in 0..17 {
            let expected = match code {
                0 => Some(Decision::Commit),
                1 | 2 | 4 | 8 | 10 | 13 | 14 | 15 => None,
                _ => Some(Decision::Refuse),
            };
            assert_eq!(
                Policy::dispatched_grpc_outcome(Some(code)).map(|outcome| outcome.decision()),
                expected,
                "{code}"
            );
        }
        assert_eq!(Policy::dispatched_grpc_outcome(None), None);
        let mut parts = http::Response::builder().status(502).body(()).unwrap().into_parts().0;
        parts.extensions.insert(Outcome::abandon());
        assert_eq!(Policy::default().dispatched_outcome(&parts), Some(Outcome::abandon()), "the handler's own word");
    }

    // H36
    #[test]
    fn every_grpc_code_has_its_default_decision() {
        for code in -1..18 {
            let expected = match code {
                0 => Decision::Commit,
                3 | 5 | 6 | 9 | 11 => Decision::Refuse,
                _ => Decision::Abandon,
            };
            assert_eq!(Policy::default().grpc_outcome(Some(code)).decision(), expected, "{code}");
        }
        assert_eq!(Policy::default().grpc_outcome(None).decision(), Decision::Abandon);
    }

    // H36: each half is replaced by itself.
    #[test]
    fn a_policy_for_http_says_nothing_of_grpc() {
        let policy = Policy::from_fn(|_| Outcome::commit());
        assert_eq!(policy.grpc_outcome(Some(13)).decision(), Decision::Abandon);
        let policy = policy.grpc(|code| if code == Some(13) { Outcome::refuse() } else { Outcome::abandon() });
        assert_eq!(policy.grpc_outcome(Some(13)).decision(), Decision::Refuse);
        assert_eq!(policy.grpc_outcome(Some(0)).decision(), Decision::Abandon);
    }

    // H32
    #[test]
    fn a_handlers_word_overrides_the_policy() {
        let mut parts = http::Response::builder().status(404).body(()).unwrap().into_parts().0;
        parts.extensions.insert(Outcome::refuse());
        assert_eq!(Policy::default().outcome(&parts).decision(), Decision::Refuse);
    }
}
