//! The service's own problem documents (RFC 9457).

use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use idempotency::RetryLater;
use idempotency::outbox::EnqueueError;

use crate::database::Database;

/// A refusal of the service itself.
pub struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
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
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A failed statement: 503 where the database only gave this transaction up, else 500.
pub fn failed<DB: Database>(error: &sqlx::Error) -> Response {
    if idempotency::is_retryable::<DB>(error) {
        return RetryLater.into_response();
    }
    tracing::error!(error = error as &dyn std::error::Error, "a statement failed");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The order could not be stored.").into_response()
}

/// An event that could not be written.
pub fn not_enqueued<DB: Database>(error: &EnqueueError) -> Response {
    if error.is_retryable::<DB>() {
        return RetryLater.into_response();
    }
    tracing::error!(error = error as &dyn std::error::Error, "an event was not enqueued");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The order could not be stored.").into_response()
}
