//! gRPC (H36): outcomes go by `grpc-status`, and refusals are trailers-only answers.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use crate::policy::{Meaning, Outcome, Policy};
use crate::problem::Problem;

/// On every refusal of a gRPC call: the problem's type URI.
pub const IDEMPOTENCY_PROBLEM: HeaderName = HeaderName::from_static("idempotency-problem");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: &str = "application/grpc";

/// How a request speaks, and so how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Http,
    Grpc,
}

impl Wire {
    /// gRPC are `application/grpc` and `application/grpc+…`. `application/grpc-web` is not: its status is part of the
    /// body. The layer stands below what translates it.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|value| {
            let Some((essence, rest)) = value.as_bytes().split_at_checked(GRPC.len()) else { return false };
            essence.eq_ignore_ascii_case(GRPC.as_bytes()) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
        });
        if is_grpc { Self::Grpc } else { Self::Http }
    }

    /// What the head of an answer means, the handler's own word first. `None` where the status is yet to come.
    pub(super) fn outcome(self, policy: &Policy, head: &Parts, is_dispatched: bool) -> Option<Meaning> {
        match self {
            Self::Http if is_dispatched => Some(policy.dispatched_outcome(head).into()),
            Self::Http => Some(Meaning::Outcome(policy.outcome(head))),
            Self::Grpc => {
                let own = head.extensions.get::<Outcome>().copied().map(Meaning::Outcome);
                own.or_else(|| {
                    let has_status = head.headers.contains_key(GRPC_STATUS);
                    has_status.then(|| of_code(policy, code(&head.headers), is_dispatched))
                })
            }
        }
    }
}

/// What the trailers of an answer mean whose head has no status.
pub(super) fn outcome_of_trailers(policy: &Policy, trailers: Option<&HeaderMap>, is_dispatched: bool) -> Meaning {
    of_code(policy, trailers.and_then(code), is_dispatched)
}

fn of_code(policy: &Policy, code: Option<i32>, is_dispatched: bool) -> Meaning {
    if is_dispatched {
        Policy::dispatched_grpc_outcome(code).into()
    } else {
        Meaning::Outcome(policy.grpc_outcome(code))
    }
}

/// What an answer means whose status is not waited for. A unary call that failed has no message and says so in its
/// head; so what sends messages has done its work, and is not to be run again.
pub(super) fn presumed(head: &Parts, is_dispatched: bool) -> Meaning {
    if head.status.is_success() { Meaning::Outcome(Outcome::commit()) } else { Meaning::of_failure(is_dispatched) }
}

/// The status in headers or trailers. What is no number is no status.
fn code(headers: &HeaderMap) -> Option<i32> {
    headers.get(GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

/// A refusal as gRPC clients understand it: HTTP 200 and no body. An HTTP status would reach them as "internal error".
pub(super) fn refusal(problem: Problem) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(GRPC_STATUS, HeaderValue::from(problem.kind().grpc_code()));
    let texts = [(GRPC_MESSAGE, encoded(problem.kind().detail())), (IDEMPOTENCY_PROBLEM, problem.kind().type_uri())];
    for (name, text) in texts {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
    if let Some(seconds) = problem.wait_seconds() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(problem);
    response
}

/// Percent-encoded, as `grpc-message` has to be.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut all, byte| {
        match byte {
            b'%' | ..b' ' | 0x7f.. => all.push_str(&format!("%{byte:02X}")),
            _ => all.push(char::from(byte)),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Decision;
    use crate::problem::ProblemKind;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    // H36
    #[test]
    fn a_call_is_known_by_its_content_type() {
        for (value, is_grpc) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC+json; charset=utf-8", true),
            ("application/grpc;a=b", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcish", false),
            ("application/grp", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(Wire::of(&headers(CONTENT_TYPE, value)) == Wire::Grpc, is_grpc, "{value}");
        }
        assert_eq!(Wire::of(&HeaderMap::new()), Wire::Http);
    }

    // H36
    #[test]
    fn the_head_decides_where_it_has_a_status_or_the_handlers_word() {
        let policy = Policy::default();
        let head = |status: Option<&'static str>, word: Option<Outcome>| {
            let mut head = Response::new(()).into_parts().0;
            head.headers = status.map(|status| headers(GRPC_STATUS, status)).unwrap_or_default();
            word.map(|word| head.extensions.insert(word));
            Wire::Grpc.outcome(&policy, &head, false).map(decision)
        };
        assert_eq!(head(None, None), None);
        assert_eq!(head(Some("0"), None), Some(Decision::Commit));
        assert_eq!(head(Some("9"), None), Some(Decision::Refuse));
        assert_eq!(head(Some("13"), None), Some(Decision::Abandon));
        assert_eq!(head(Some("no number"), None), Some(Decision::Abandon));
        assert_eq!(head(Some("13"), Some(Outcome::refuse())), Some(Decision::Refuse));
        assert_eq!(head(None, Some(Outcome::abandon())), Some(Decision::Abandon));
    }

    fn decision(meaning: Meaning) -> Decision {
        let Meaning::Outcome(outcome) = meaning else { panic!("unknown") };
        outcome.decision()
    }

    // S22, H36
    #[test]
    fn after_a_call_to_somebody_else_no_status_is_unknown() {
        let policy = Policy::default();
        assert_eq!(outcome_of_trailers(&policy, None, true), Meaning::Unknown);
        assert_eq!(outcome_of_trailers(&policy, Some(&headers(GRPC_STATUS, "14")), true), Meaning::Unknown);
        assert_eq!(decision(outcome_of_trailers(&policy, Some(&headers(GRPC_STATUS, "0")), true)), Decision::Commit);
        let mut head = Response::new(()).into_parts().0;
        head.headers = headers(GRPC_STATUS, "14");
        assert_eq!(Wire::Grpc.outcome(&policy, &head, true), Some(Meaning::Unknown));
    }

    // H36: what the trailers say, or do not say.
    #[test]
    fn without_a_status_nothing_is_kept() {
        let of = |trailers: Option<&HeaderMap>| decision(outcome_of_trailers(&Policy::default(), trailers, false));
        assert_eq!(of(None), Decision::Abandon);
        assert_eq!(of(Some(&HeaderMap::new())), Decision::Abandon);
        assert_eq!(of(Some(&headers(GRPC_STATUS, ""))), Decision::Abandon);
        assert_eq!(of(Some(&headers(GRPC_STATUS, "0"))), Decision::Commit);
    }

    // H36, H42
    #[test]
    fn every_refusal_is_trailers_only() {
        for kind in ProblemKind::ALL {
            let response = refusal(Problem::new(*kind));
            assert!(response.status() == 200 && response.body().is_empty());
            assert_eq!(response.headers()[CONTENT_TYPE], GRPC);
            assert_eq!(response.headers()[GRPC_STATUS], kind.grpc_code().to_string());
            assert_eq!(response.headers()[GRPC_MESSAGE], kind.detail());
            assert_eq!(response.headers()[IDEMPOTENCY_PROBLEM], kind.type_uri());
            assert_eq!(response.headers().contains_key(RETRY_AFTER), kind.waiting_helps());
            assert_eq!(response.extensions().get::<Problem>().map(Problem::kind), Some(*kind));
        }
    }

    // H36
    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(encoded("a b~ 100% é\n\x7f"), "a b~ 100%25 %C3%A9%0A%7F");
    }
}
