//! What the client gets: a fresh answer, a stored one, or a refusal.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use http_body::Body;

use super::body::ResponseBody;
use super::config::Config;
use super::grpc::{self, Wire};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit_error};
use crate::problem::{Problem, ProblemKind};
use crate::record::{Answer, AnswerBody};
use crate::store::Verdict;

/// An answer before it is dressed for the client.
pub(super) enum Reply<R: Body> {
    Fresh(Response<ResponseBody<R>>),
    Replay(Answer),
    Refused(Problem),
}

impl<R: Body> Reply<R> {
    pub(super) fn refused(kind: ProblemKind) -> Self {
        Self::Refused(Problem::new(kind))
    }

    /// A stored answer: replayed, or 410 where it was not kept (H40).
    pub(super) fn stored(answer: Answer) -> Self {
        match answer.body {
            AnswerBody::Kept(_) => Self::Replay(answer),
            AnswerBody::NotKept => {
                Self::Refused(Problem::new(ProblemKind::AnswerNotKept).original_status(answer.status))
            }
        }
    }

    /// For answers that carry no key.
    pub(super) fn into_response(self, config: &Config, wire: Wire) -> Response<ResponseBody<R>> {
        match self {
            Self::Fresh(response) => response,
            Self::Replay(answer) => replay(answer),
            Self::Refused(problem) => {
                config.of().emit(Event::Refused(problem.kind().slug()));
                let response = match wire {
                    Wire::Http => config.renderer.response(problem),
                    Wire::Grpc => grpc::refusal(problem),
                };
                response.map(|body| ResponseBody::whole(body, None))
            }
        }
    }

    /// With the key's field as it was received, on every answer to a well-formed key, and the mark of a replay (H39).
    pub(super) fn dress(
        self,
        config: &Config,
        wire: Wire,
        echo: Option<(HeaderName, HeaderValue)>,
    ) -> Response<ResponseBody<R>> {
        let replayed = matches!(self, Self::Replay(_));
        let mut response = self.into_response(config, wire);
        if let Some((name, value)) = echo {
            response.headers_mut().insert(name, value);
        }
        if replayed {
            config.of().emit(Event::Replayed);
            response.headers_mut().insert(config.replayed_header.clone(), HeaderValue::from_static("true"));
        } else {
            // A handler that passes on the answer of another service may have taken over its mark.
            response.headers_mut().remove(&config.replayed_header);
        }
        response
    }
}

fn replay<R: Body>(answer: Answer) -> Response<ResponseBody<R>> {
    let data = match answer.body {
        AnswerBody::Kept(data) => data,
        AnswerBody::NotKept => Bytes::new(),
    };
    let mut response = Response::new(ResponseBody::whole(data, answer.trailers));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// The reply of a verdict that is not a claim.
pub(super) fn of_verdict<R: Body, C>(verdict: Verdict<C>) -> Reply<R> {
    match verdict {
        Verdict::Replay(record) => Reply::stored(record.answer),
        Verdict::InProgress { retry_after } => in_progress(retry_after),
        Verdict::Mismatch => mismatch(),
        Verdict::Orphaned => Reply::refused(ProblemKind::Orphaned),
        Verdict::Unknown => Reply::refused(ProblemKind::OutcomeUnknown),
        // Not for us to have; in doubt the client asks again.
        Verdict::Claimed(_) => in_progress(None),
    }
}

pub(super) fn in_progress<R: Body>(retry_after: Option<std::time::Duration>) -> Reply<R> {
    Reply::Refused(Problem::new(ProblemKind::InProgress).retry_after(retry_after))
}

pub(super) fn mismatch<R: Body>() -> Reply<R> {
    Reply::refused(ProblemKind::KeyReused)
}

/// The refusal that an error of the store means for the client.
pub(super) fn failed<R: Body>(error: &Error) -> Reply<R> {
    emit_error(Event::StoreError, error);
    Reply::refused(match error.kind() {
        // A conflict is the database's choice among equals, and a record of a newer version or an unfinished
        // migration passes with the deployment: waiting helps with each.
        ErrorKind::Unavailable
        | ErrorKind::Full
        | ErrorKind::Conflict
        | ErrorKind::Unreadable
        | ErrorKind::Setup
        | ErrorKind::NotAWriter => ProblemKind::StoreUnavailable,
        ErrorKind::NotRecorded => ProblemKind::NotRecorded,
        ErrorKind::CommitRefused => ProblemKind::CommitRefused,
        ErrorKind::TransactionAborted | ErrorKind::TransactionLost => ProblemKind::TransactionAborted,
        ErrorKind::TransactionEnded => ProblemKind::TransactionEnded,
        ErrorKind::HeldTransaction => ProblemKind::HeldTransaction,
        ErrorKind::LeaseLost => ProblemKind::LeaseLost,
    })
}
