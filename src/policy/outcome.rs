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
}

impl Policy {
    /// A policy of your own. `f` is not asked where the response carries an [`Outcome`], and not for gRPC answers: see
    /// [`Policy::grpc`].
    pub fn from_fn(f: impl Fn(&Parts) -> Outcome + Send + Sync + 'static) -> Self {
        Self { http: Arc::new(f), grpc: Arc::new(|code| Outcome::of(by_grpc_code(code))) }
    }

    /// Judges gRPC answers by their status code; `None` where the answer has none, or one that is no number. `f` is not
    /// asked where the response carries an [`Outcome`]. The body has been read by then: what `f` says of streaming has
    /// no effect.
    #[must_use]
    pub fn grpc(mut self, f: impl Fn(Option<i32>) -> Outcome + Send + Sync + 'static) -> Self {
        self.grpc = Arc::new(f);
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
