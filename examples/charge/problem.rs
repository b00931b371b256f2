//! What goes wrong, and how clients are told (RFC 9457).

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use idempotency::{ErrorKind, RetryLater};

use crate::network::client::Fault;

/// A problem document.
pub fn problem(status: StatusCode, detail: &str) -> impl IntoResponse + use<> {
    let title = status.canonical_reason().unwrap_or("Problem");
    let document =
        serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(CONTENT_TYPE, "application/problem+json")], document.to_string())
}

/// Why an operation has stopped.
#[derive(Debug)]
pub enum Failed {
    /// The network did not do it, or nobody can tell.
    Network(Fault),
    /// A later attempt has come further.
    Overtaken,
    /// The key's lease is lost, or its store in trouble.
    Key(idempotency::Error),
    Database(sqlx::Error),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Network(fault)
    }
}

impl From<idempotency::Error> for Failed {
    fn from(error: idempotency::Error) -> Self {
        Self::Key(error)
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            Self::Network(Fault::Declined) => {
                problem(StatusCode::PAYMENT_REQUIRED, "The card was declined.").into_response()
            }
            Self::Network(Fault::Unknown(why)) => {
                tracing::warn!(why, "the network gave no answer");
                problem(StatusCode::BAD_GATEWAY, "The card network gave no answer. Send the request again.")
                    .into_response()
            }
            // Of an attempt that has lost its lease the layer makes 409 `lease-lost`.
            Self::Overtaken => RetryLater.into_response(),
            Self::Key(error) if error.kind() != ErrorKind::Setup => RetryLater.into_response(),
            Self::Database(error) if idempotency::is_retryable::<sqlx::Sqlite>(&error) => RetryLater.into_response(),
            other => {
                tracing::error!(why = ?other, "an operation could not be recorded");
                problem(StatusCode::INTERNAL_SERVER_ERROR, "The operation could not be recorded.").into_response()
            }
        }
    }
}
