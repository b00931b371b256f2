//! Reads the body of a guarded request (H19).

use std::error::Error as StdError;

use bytes::Bytes;
use http_body::Body;
use http_body_util::LengthLimitError;

use super::body::Trailers;
use super::collect::{Collected, Collector};
use crate::problem::ProblemKind;

/// The whole body and its trailers, or the problem with it. A length known to be too large is refused unread.
pub(super) async fn read<B>(body: B, limit: usize) -> Result<(Bytes, Trailers), ProblemKind>
where
    B: Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(ProblemKind::BodyTooLarge);
    }
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    match Collector::new(body).collect(limit).await {
        Collected::Whole(data, trailers) => Ok((data, trailers.map(Box::new))),
        Collected::TooLarge => Err(ProblemKind::BodyTooLarge),
        Collected::Broken(error) => Err(problem_of(error.into().as_ref())),
    }
}

/// A limiter outside says "too large" in an error of its own, perhaps wrapped.
fn problem_of(error: &(dyn StdError + 'static)) -> ProblemKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return ProblemKind::BodyTooLarge;
        }
        cause = error.source();
    }
    ProblemKind::BodyIncomplete
}
