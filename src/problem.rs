//! The answers that the layer itself gives, as problem documents (RFC 9457) with stable types (H42, H43).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

/// What every type URI begins with. Wire format: it never changes.
pub const TYPE_PREFIX: &str = "urn:idempotency:problem:";

/// How long a client is asked to wait where nobody knows better.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident, $slug:literal, $status:ident, $grpc:literal, $waits:literal, $title:literal, $detail:literal;)*) => {
        /// Why the layer did not let a request through, or could not keep its answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind { $($(#[$doc])* $name,)* }

        impl ProblemKind {
            /// Every kind, in the order of the protocol guide.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The last part of the type URI.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// The gRPC status code. Where waiting helps it is 10 (aborted) or 14 (unavailable), and nowhere else.
            #[must_use]
            pub const fn grpc_code(self) -> i32 {
                match self { $(Self::$name => $grpc,)* }
            }

            /// Whether waiting and sending the same request again may help. Exactly these carry `Retry-After`.
            #[must_use]
            pub const fn waiting_helps(self) -> bool {
                match self { $(Self::$name => $waits,)* }
            }

            /// The problem's title: the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What the client can do.
            #[must_use]
            pub const fn detail(self) -> &'static str {
                match self { $(Self::$name => $detail,)* }
            }
        }
    };
}

problems! {
    /// The operation needs a key and the request has none.
    MissingKey, "missing-key", BAD_REQUEST, 3, false, "Idempotency key missing",
        "This operation needs an idempotency key. Choose one for the operation and send it with every attempt.";
    /// The key is not one.
    MalformedKey, "malformed-key", BAD_REQUEST, 3, false, "Idempotency key malformed",
        "Send exactly one key of 1 to 255 printable ASCII characters, bare or as a quoted string (RFC 9651).";
    /// The request's body is larger than the layer reads.
    BodyTooLarge, "body-too-large", PAYLOAD_TOO_LARGE, 8, false, "Request body too large",
        "The request body is larger than this operation accepts. Nothing was done.";
    /// The request's body broke off.
    BodyIncomplete, "body-incomplete", BAD_REQUEST, 3, false, "Request body incomplete",
        "The request body ended before it was complete. Nothing was done; send the request again.";
    /// The same request is being worked on.
    InProgress, "in-progress", CONFLICT, 10, true, "Operation in progress",
        "A request with this idempotency key is being processed. Send the same request again after Retry-After.";
    /// The key belongs to another request.
    KeyReused, "key-reused", UNPROCESSABLE_ENTITY, 9, false, "Idempotency key reused",
        "This idempotency key was used with another request. Use a new key for a new operation.";
    /// The operation is done and its answer was not kept.
    AnswerNotKept, "answer-not-kept", GONE, 15, false, "Answer not kept",
        "This operation was answered before, and the answer was not kept. Read the result where the operation stored it.";
    /// The store cannot be asked.
    StoreUnavailable, "store-unavailable", SERVICE_UNAVAILABLE, 14, true, "Temporarily unavailable",
        "This request was not processed. Send it again, with the same key, after Retry-After.";
    /// The connection to the store was lost at the worst moment.
    NotRecorded, "not-recorded", SERVICE_UNAVAILABLE, 14, true, "Outcome not known yet",
        "The operation may or may not have been done. Send the same request with the same key: it learns the truth.";
    /// The database refused the commit.
    CommitRefused, "commit-refused", INTERNAL_SERVER_ERROR, 13, false, "Commit refused",
        "The database refused to store the operation. Nothing was done.";
    /// The handler ended the transaction itself.
    TransactionEnded, "transaction-ended", INTERNAL_SERVER_ERROR, 13, false, "Transaction ended early",
        "The service ended the operation's transaction early. What was done cannot be told; ask the operator.";
    /// The handler left the transaction aborted.
    TransactionAborted, "transaction-aborted", INTERNAL_SERVER_ERROR, 13, false, "Transaction aborted",
        "The operation's transaction failed inside the service. Nothing was done.";
    /// The handler kept the transaction.
    HeldTransaction, "held-transaction", INTERNAL_SERVER_ERROR, 13, false, "Transaction still held",
        "The service kept the operation's transaction beyond its end. Nothing was done.";
    /// The handler asks for a transaction that this route does not have.
    NoTransaction, "no-transaction", INTERNAL_SERVER_ERROR, 13, false, "No transaction",
        "The service is not set up to give this operation a transaction. Nothing was done.";
    /// An earlier attempt ended its transaction itself.
    Orphaned, "orphaned", CONFLICT, 9, false, "Outcome unknown",
        "An earlier attempt left this operation in a state that only the operator can resolve. Do not send it again.";
    /// Another attempt took the key over while the handler ran.
    LeaseLost, "lease-lost", CONFLICT, 10, true, "Taken over by another attempt",
        "Another attempt has taken this operation over. Send the same request again to get its answer.";
    /// An earlier attempt stopped after it had called somebody else.
    OutcomeUnknown, "outcome-unknown", CONFLICT, 9, false, "Outcome unknown",
        "An earlier attempt stopped before its outcome was known. The operator has to settle it.";
    /// Whose key it is cannot be told.
    ScopeUnavailable, "scope-unavailable", INTERNAL_SERVER_ERROR, 13, false, "Caller not known",
        "The service cannot tell whose idempotency key this is. Nothing was done.";
}

impl ProblemKind {
    /// The absolute type URI.
    #[must_use]
    pub fn type_uri(self) -> String {
        format!("{TYPE_PREFIX}{}", self.slug())
    }
}

/// One refusal. It is also in the extensions of the response that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    retry_after: Option<Duration>,
    original_status: Option<StatusCode>,
}

impl Problem {
    /// A problem of this kind; where waiting helps, for one second.
    #[must_use]
    pub fn new(kind: ProblemKind) -> Self {
        let retry_after = kind.waiting_helps().then_some(DEFAULT_WAIT);
        Self { kind, status: kind.status(), retry_after, original_status: None }
    }

    /// How long to wait. Ignored where waiting does not help.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        if self.kind.waiting_helps() && wait.is_some() {
            self.retry_after = wait;
        }
        self
    }

    /// The status of the answer that was not kept.
    #[must_use]
    pub fn original_status(mut self, status: StatusCode) -> Self {
        self.original_status = Some(status);
        self
    }

    /// Another status than the kind's own. Which type it is and whether waiting helps stay as they are.
    #[must_use]
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// What kind of problem.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The HTTP status: the kind's own, unless the layer's [`Profile`](crate::layer::Profile) has another one for it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// `Retry-After` in whole seconds, at least one; `None` where waiting does not help (H42).
    #[must_use]
    pub fn wait_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    /// The status of the answer that was not kept (410 `answer-not-kept`).
    #[must_use]
    pub fn kept_status(&self) -> Option<StatusCode> {
        self.original_status
    }

    /// The problem document: `application/problem+json`, `Cache-Control: no-store`, and `Retry-After` where waiting
    /// helps.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let mut document = json!({
            "type": self.kind.type_uri(),
            "title": self.kind.title(),
            "status": self.status().as_u16(),
            "detail": self.kind.detail(),
        });
        if let Some(status) = self.original_status {
            document["original-status"] = json!(status.as_u16());
        }
        let mut response = Response::new(Bytes::from(document.to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.wait_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// How refusals look over HTTP (gRPC has one form only). Implemented for closures, so that a service can keep its own
/// error format. The layer adds
/// `Retry-After` where the kind calls for it and the renderer left it out, and never lets it pass where it does not.
pub trait Render: Send + Sync + 'static {
    /// The response that shows `problem`.
    fn render(&self, problem: &Problem) -> Response<Bytes>;
}

impl<F: Fn(&Problem) -> Response<Bytes> + Send + Sync + 'static> Render for F {
    fn render(&self, problem: &Problem) -> Response<Bytes> {
        self(problem)
    }
}

/// The renderer of a layer, with the address of the documentation if there is one.
#[derive(Clone)]
pub(crate) struct Renderer {
    render: Arc<dyn Render>,
    described_by: Option<HeaderValue>,
    /// Statuses that differ from the kinds' own (H43).
    statuses: &'static [(ProblemKind, StatusCode)],
}

impl Renderer {
    pub(crate) fn set(&mut self, render: impl Render) {
        self.render = Arc::new(render);
    }

    pub(crate) fn described_by(&mut self, link: HeaderValue) {
        self.described_by = Some(link);
    }

    pub(crate) fn statuses(&mut self, statuses: &'static [(ProblemKind, StatusCode)]) {
        self.statuses = statuses;
    }

    /// Whether waiting helps is said by a header, whatever the renderer does (H42).
    pub(crate) fn response(&self, problem: Problem) -> Response<Bytes> {
        let other = self.statuses.iter().find(|(kind, _)| *kind == problem.kind);
        let problem = other.map_or(problem, |(_, status)| problem.with_status(*status));
        let mut response = self.render.render(&problem);
        match problem.wait_seconds() {
            Some(seconds) => {
                response.headers_mut().entry(RETRY_AFTER).or_insert_with(|| HeaderValue::from(seconds));
            }
            None => {
                response.headers_mut().remove(RETRY_AFTER);
            }
        }
        if let Some(link) = &self.described_by {
            response.headers_mut().append(LINK, link.clone());
        }
        response.extensions_mut().insert(problem);
        response
    }
}

impl Default for Renderer {
    fn default() -> Self {
        Self { render: Arc::new(Problem::to_response), described_by: None, statuses: &[] }
    }
}

impl fmt::Debug for Renderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renderer(..)")
    }
}

/// A handler's answer to a conflict of its own statements (H34): 503 with `Retry-After: 1`, nothing stored, the key
/// free. See [`is_retryable`](crate::is_retryable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryLater;

/// In the extensions of a [`RetryLater`] response: tells the layer that the database gave the transaction up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conflicted;

impl RetryLater {
    /// The response.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Problem::new(ProblemKind::StoreUnavailable).to_response();
        response.extensions_mut().insert(Conflicted);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H42, H43, case C30, case C31
    #[test]
    fn the_table_of_refusals_is_the_wire_format() {
        let waits = ["in-progress", "lease-lost", "store-unavailable", "not-recorded"];
        let statuses = [
            ("missing-key", 400),
            ("malformed-key", 400),
            ("body-too-large", 413),
            ("body-incomplete", 400),
            ("in-progress", 409),
            ("key-reused", 422),
            ("answer-not-kept", 410),
            ("store-unavailable", 503),
            ("not-recorded", 503),
            ("commit-refused", 500),
            ("transaction-ended", 500),
            ("transaction-aborted", 500),
            ("held-transaction", 500),
            ("no-transaction", 500),
            ("orphaned", 409),
            ("lease-lost", 409),
            ("outcome-unknown", 409),
            ("scope-unavailable", 500),
        ];
        assert_eq!(ProblemKind::ALL.len(), statuses.len());
        for (kind, (slug, status)) in ProblemKind::ALL.iter().zip(statuses) {
            let response = Renderer::default().response(Problem::new(*kind));
            let document: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(document["type"], format!("urn:idempotency:problem:{slug}"));
            assert_eq!(document["status"], status);
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), waits.contains(&slug), "{slug}");
            assert!(response.extensions().get::<Problem>().is_some());
        }
    }

    // H36
    #[test]
    fn a_grpc_code_says_whether_waiting_helps() {
        let codes = [3, 3, 8, 3, 10, 9, 15, 14, 14, 13, 13, 13, 13, 13, 9, 10, 9, 13];
        assert_eq!(ProblemKind::ALL.iter().map(|kind| kind.grpc_code()).collect::<Vec<_>>(), codes);
        for kind in ProblemKind::ALL {
            assert_eq!([10, 14].contains(&kind.grpc_code()), kind.waiting_helps(), "{kind:?}");
        }
    }

    // H20, H42
    #[test]
    fn retry_after_is_whole_seconds_and_at_least_one() {
        let wait = |d| Problem::new(ProblemKind::InProgress).retry_after(Some(d)).wait_seconds();
        assert_eq!(wait(Duration::ZERO), Some(1));
        assert_eq!(wait(Duration::from_millis(1_001)), Some(2));
        assert_eq!(wait(Duration::from_secs(7)), Some(7));
        assert_eq!(Problem::new(ProblemKind::KeyReused).retry_after(Some(DEFAULT_WAIT)).wait_seconds(), None);
    }

    // H42
    #[test]
    fn a_renderer_cannot_break_the_retry_after_rule() {
        let mut renderer = Renderer::default();
        renderer.set(|_: &Problem| Response::builder().header(RETRY_AFTER, "9").body(Bytes::new()).unwrap());
        let refused = |kind| renderer.response(Problem::new(kind)).headers().get(RETRY_AFTER).cloned();
        assert_eq!(refused(ProblemKind::KeyReused), None);
        assert_eq!(refused(ProblemKind::InProgress).unwrap(), "9");
        renderer.set(|_: &Problem| Response::new(Bytes::new()));
        assert_eq!(renderer.response(Problem::new(ProblemKind::InProgress)).headers()[RETRY_AFTER], "1");
    }
}
