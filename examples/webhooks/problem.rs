//! What the sender is told where its delivery is not accepted (RFC 9457).

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// A refusal.
pub struct Problem {
    status: StatusCode,
    detail: &'static str,
    /// In seconds.
    retry_after: Option<u32>,
}

impl Problem {
    pub fn new(status: StatusCode, detail: &'static str) -> Self {
        Self { status, detail, retry_after: None }
    }

    /// The same delivery is welcome in so many seconds.
    pub fn later(seconds: u32) -> Self {
        let detail = "The event is being processed, or cannot be just now. Deliver it again.";
        Self { status: StatusCode::SERVICE_UNAVAILABLE, detail, retry_after: Some(seconds) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let document = serde_json::json!({
            "type": "about:blank", "title": title, "status": self.status.as_u16(), "detail": self.detail,
        });
        let mut response = (self.status, document.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
