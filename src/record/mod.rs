//! What is kept of an answer, and its stored form.
//!
//! [`Answer::encode`] and [`Answer::decode`] give back the same bytes that went in: status, headers in their order with
//! repeats and bytes outside ASCII, body, trailers. What of an answer's headers is worth keeping is up to a
//! [`HeaderFilter`].

mod codec;
mod error;
mod headers;

pub use error::RecordError;
pub use headers::HeaderFilter;

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};

use crate::fingerprint::Fingerprint;

/// A stored answer and the request that it answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The request that was answered.
    pub fingerprint: Fingerprint,
    /// What it was answered with.
    pub answer: Answer,
}

/// An answer as it is kept. `Debug` shows header names and the body's length only.
#[derive(Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The kept headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
    /// The trailers, if the answer had any.
    pub trailers: Option<HeaderMap>,
}

/// The body of a kept answer. `Debug` shows its length only.
#[derive(Clone, PartialEq)]
pub enum AnswerBody {
    /// The whole body.
    Kept(Bytes),
    /// The operation is done, but its body was too large, a stream, or not to be stored: it cannot be sent again.
    NotKept,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("headers", &Names(&self.headers))
            .field("body", &self.body)
            .field("trailers", &self.trailers.as_ref().map(Names))
            .finish()
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerBody::Kept(bytes) => write!(f, "Kept({} bytes)", bytes.len()),
            AnswerBody::NotKept => f.write_str("NotKept"),
        }
    }
}

/// Shows the names of fields and not their values.
struct Names<'a>(&'a HeaderMap);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys().map(HeaderName::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::LOCATION;

    use super::*;

    #[test]
    fn debug_shows_neither_header_values_nor_body_bytes() {
        // H9, case K16
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("s3cret"))]);
        let answer = Answer {
            status: StatusCode::CREATED,
            headers: headers.clone(),
            body: AnswerBody::Kept(Bytes::from_static(b"s3cret")),
            trailers: Some(headers),
        };
        assert_eq!(
            format!("{answer:?}"),
            r#"Answer { status: 201, headers: ["location"], body: Kept(6 bytes), trailers: Some(["location"]) }"#
        );
        assert_eq!(format!("{:?}", AnswerBody::NotKept), "NotKept");
    }
}
