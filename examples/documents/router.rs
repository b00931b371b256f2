//! The routes, and who may call them.

use axum::Router;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use idempotency::IdempotencyLayer;
use idempotency::precondition::PreconditionLayer;
use idempotency::store::Store;
use sqlx::Pool;

use crate::database::Database;
use crate::handlers::{delete, patch, put, read};
use crate::problem::Problem;

/// Who calls, as the bearer token says: the scope of the caller's keys, and whose documents they are.
#[derive(Clone)]
pub struct Principal(pub String);

/// The whole service.
pub fn router<DB: Database, S: Store>(pool: Pool<DB>, layer: IdempotencyLayer<S>) -> Router {
    let document = get(read::<DB>).put(put::<DB>).patch(patch::<DB>).delete(delete::<DB>);
    let guarded = Router::new()
        .route("/documents/{id}", document)
        // Below the idempotency layer: a repeated PUT gets its answer before its If-Match, stale by its own success, is
        // judged.
        .layer(PreconditionLayer::new().require([Method::PUT, Method::PATCH]))
        .layer(layer)
        .layer(from_fn(authenticate))
        .with_state(pool);
    Router::new().merge(guarded).route("/healthz", get(|| async { "ok" })).fallback(|| async { Problem::not_found() })
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
