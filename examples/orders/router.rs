//! The routes, and who may call them.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use idempotency::IdempotencyLayer;
use idempotency::outbox::Outbox;
use idempotency::store::Store;

use crate::database::Database;
use crate::problem::Problem;
use crate::{operator, order};

/// Who calls, as the bearer token says. The scope of the caller's keys.
#[derive(Clone)]
pub struct Principal(pub String);

pub fn router<DB: Database, S: Store>(layer: IdempotencyLayer<S>, outbox: Outbox<DB>) -> Router {
    let orders = Router::new()
        .route("/orders", post(order::place::<DB>))
        // The authentication stands outside: a replay is authorised like a first request.
        .layer(layer)
        .layer(from_fn(authenticate))
        // Outside of the layer everything is committed.
        .layer(from_fn_with_state(outbox.clone(), wake::<DB>));
    Router::new()
        .merge(orders)
        .route("/outbox", get(operator::stats::<DB>))
        .route("/outbox/dead/{id}/redrive", post(operator::redrive::<DB>))
        .route("/outbox/dead/{id}/discard", post(operator::discard::<DB>))
        .route("/healthz", get(async || "ok"))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "There is no such resource."))
        .with_state(outbox)
}

/// The relay of this process need not wait for its next look.
async fn wake<DB: Database>(State(outbox): State<Outbox<DB>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    outbox.wake();
    response
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let name = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, name)| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    match name {
        Some(name) => {
            request.extensions_mut().insert(Principal(name));
            next.run(request).await
        }
        None => Problem::new(StatusCode::UNAUTHORIZED, "Say who you are: Authorization: Bearer NAME.").into_response(),
    }
}
