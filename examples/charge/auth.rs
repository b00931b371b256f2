//! Who calls, as the bearer token says.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::problem;

/// A customer. The scope of the customer's keys.
#[derive(Clone)]
pub struct Principal(pub String);

fn bearer(request: &Request) -> Option<String> {
    let (scheme, name) = request.headers().get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let name = name.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !name.is_empty()).then(|| name.to_owned())
}

/// Lets every customer in.
pub async fn customer(mut request: Request, next: Next) -> Response {
    match bearer(&request) {
        Some(name) => {
            request.extensions_mut().insert(Principal(name));
            next.run(request).await
        }
        None => problem(StatusCode::UNAUTHORIZED, "Say who you are: Authorization: Bearer NAME.").into_response(),
    }
}

/// Lets the operator in, who has this token.
pub async fn operator(State(token): State<String>, request: Request, next: Next) -> Response {
    match bearer(&request) {
        Some(name) if name == token => next.run(request).await,
        Some(_) => problem(StatusCode::FORBIDDEN, "This is for operators.").into_response(),
        None => problem(StatusCode::UNAUTHORIZED, "Say who you are: Authorization: Bearer TOKEN.").into_response(),
    }
}
