//! Everything that knows axum: extractors, rejections, response parts, and the path before nesting.

use http::request::Parts;

/// The path as the client sent it: a layer inside `nest("/v1")` sees the prefix too (H11).
pub(crate) fn original_path(parts: &Parts) -> &str {
    original_uri(parts).path()
}

/// The query as the client sent it, percent-encoded.
pub(crate) fn original_query(parts: &Parts) -> Option<&str> {
    original_uri(parts).query()
}

#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> &http::Uri {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(parts: &Parts) -> &http::Uri {
    &parts.uri
}

/// The route's template, such as `/payments/{id}`.
#[cfg(feature = "axum")]
pub(crate) fn matched_path(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
pub(crate) fn matched_path(_: &Parts) -> Option<&str> {
    None
}

#[cfg(feature = "axum")]
mod axum_impls {
    use std::convert::Infallible;

    use axum_core::body::Body;
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum_core::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
    use http::request::Parts;

    use crate::attempt::Attempt;
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    use crate::db::{Dialect, Tx, TxError};
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    use crate::error::ErrorKind;
    use crate::policy::{Keyless, Outcome, Retention};
    use crate::precondition::{Preconditions, Refusal};
    use crate::problem::{Problem, ProblemKind, RetryLater};

    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    impl<DB: Dialect, St: Send + Sync> FromRequestParts<St> for Tx<DB> {
        type Rejection = TxError;

        async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Self, TxError> {
            Self::take(&parts.extensions).await
        }
    }

    /// `None` where no layer lends a transaction of this engine to this request.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    impl<DB: Dialect, St: Send + Sync> OptionalFromRequestParts<St> for Tx<DB> {
        type Rejection = TxError;

        async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Option<Self>, TxError> {
            match Self::take(&parts.extensions).await {
                Ok(tx) => Ok(Some(tx)),
                Err(TxError::Absent) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    impl IntoResponse for TxError {
        fn into_response(self) -> Response {
            match &self {
                Self::Begin(error) if error.is_retryable() => RetryLater.into_response(),
                Self::Begin(error) if error.kind() == ErrorKind::LeaseLost => problem(ProblemKind::LeaseLost),
                _ => problem(ProblemKind::NoTransaction),
            }
        }
    }

    impl<St: Send + Sync> FromRequestParts<St> for Attempt {
        type Rejection = NoAttempt;

        async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Self, NoAttempt> {
            parts
                .extensions
                .get::<Self>()
                .cloned()
                .ok_or_else(|| NoAttempt { is_keyless: parts.extensions.get::<Keyless>().is_some() })
        }
    }

    /// `None` for requests that are not guarded or carry no key.
    impl<St: Send + Sync> OptionalFromRequestParts<St> for Attempt {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }

    /// The rejection of the [`Attempt`] extractor: 500 `no-transaction` where the request is not guarded,
    /// 400 `missing-key` where it is and carries no key.
    #[derive(Clone, Copy, Debug, thiserror::Error)]
    #[error("this request runs under no idempotency key")]
    pub struct NoAttempt {
        is_keyless: bool,
    }

    impl IntoResponse for NoAttempt {
        fn into_response(self) -> Response {
            problem(if self.is_keyless { ProblemKind::MissingKey } else { ProblemKind::NoTransaction })
        }
    }

    fn problem(kind: ProblemKind) -> Response {
        Problem::new(kind).to_response().map(Body::from)
    }

    impl IntoResponse for RetryLater {
        fn into_response(self) -> Response {
            self.to_response().map(Body::from)
        }
    }

    /// Those that a [`PreconditionLayer`](crate::precondition::PreconditionLayer) has read, or the request's own; 400 where
    /// a field does not parse.
    impl<St: Send + Sync> FromRequestParts<St> for Preconditions {
        type Rejection = Refusal;

        async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Self, Refusal> {
            Ok(Self::of(parts)?)
        }
    }

    impl IntoResponse for Refusal {
        fn into_response(self) -> Response {
            self.to_response().map(Body::from)
        }
    }

    impl IntoResponseParts for Outcome {
        type Error = Infallible;

        fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
            response.extensions_mut().insert(self);
            Ok(response)
        }
    }

    impl IntoResponseParts for Retention {
        type Error = Infallible;

        fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
            response.extensions_mut().insert(self);
            Ok(response)
        }
    }
}

#[cfg(feature = "axum")]
pub use axum_impls::NoAttempt;
