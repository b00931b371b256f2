//! The answers to preconditions that cannot be met, as problem documents (RFC 9457).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::json;

use super::list::Malformed;
use crate::problem::TYPE_PREFIX;

/// Why a request was refused for its preconditions. With the feature `axum` it is a response. None of them uses an
/// idempotency key up (H32): the next attempt is judged afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// 400 `malformed-precondition`: `If-Match` or `If-None-Match` does not parse.
    #[error("If-Match or If-None-Match does not parse")]
    Malformed,
    /// 428 `precondition-required`: the method needs one of them (RFC 6585 section 3).
    #[error("the request has no If-Match and no If-None-Match")]
    Required,
    /// 412 `precondition-failed`: the resource is not as the client expects it.
    #[error("the resource is not as the request expects it")]
    Failed,
}

impl Refusal {
    /// The status.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Required => StatusCode::PRECONDITION_REQUIRED,
            Self::Failed => StatusCode::PRECONDITION_FAILED,
        }
    }

    /// The last part of the type URI, after [`TYPE_PREFIX`].
    #[must_use]
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Malformed => "malformed-precondition",
            Self::Required => "precondition-required",
            Self::Failed => "precondition-failed",
        }
    }

    /// What the client can do.
    #[must_use]
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Malformed => {
                "Send If-Match and If-None-Match as * or as a list of quoted entity tags. Nothing was done."
            }
            Self::Required => {
                "Read the resource and send its ETag as If-Match, or If-None-Match: * to create it. Nothing was done."
            }
            Self::Failed => "The resource is not what the request was made for. Read it again. Nothing was done.",
        }
    }

    /// The problem document, with `Cache-Control: no-store`.
    #[must_use]
    pub fn to_response(self) -> Response<Bytes> {
        let document = json!({
            "type": format!("{TYPE_PREFIX}{}", self.slug()),
            "title": self.status().canonical_reason(),
            "status": self.status().as_u16(),
            "detail": self.detail(),
        });
        let mut response = Response::new(Bytes::from(document.to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl From<Malformed> for Refusal {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // D2, H32
    #[test]
    fn refusals_are_documents_that_nobody_stores() {
        for (refusal, status) in [(Refusal::Malformed, 400), (Refusal::Required, 428), (Refusal::Failed, 412)] {
            let response = refusal.to_response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            let document: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(document["status"], status);
            assert_eq!(document["type"], format!("{TYPE_PREFIX}{}", refusal.slug()));
            let outcome = crate::policy::Policy::default().outcome(&response.into_parts().0);
            assert_eq!(outcome.decision(), crate::policy::Decision::Abandon);
        }
    }
}
