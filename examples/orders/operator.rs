//! What is on its way, and what a person decides about events that have failed.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::outbox::Outbox;
use uuid::Uuid;

use crate::database::Database;
use crate::problem::Problem;

/// `GET /outbox`.
pub async fn stats<DB: Database>(State(outbox): State<Outbox<DB>>) -> Response {
    match outbox.stats().await {
        Ok(stats) => Json(serde_json::json!({
            "pending": stats.pending,
            "oldest_age_seconds": stats.oldest_age.map(|age| age.as_secs_f64()),
            "failing": stats.failing,
            "blocked": stats.blocked,
            "dead": stats.dead,
        }))
        .into_response(),
        Err(error) => failed(&error),
    }
}

/// `POST /outbox/dead/{id}/redrive`: the event is published again, with the id that it has.
pub async fn redrive<DB: Database>(State(outbox): State<Outbox<DB>>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse::<Uuid>() else { return unknown() };
    let redriven = outbox.redrive(id).await;
    outbox.wake();
    answer(redriven)
}

/// `POST /outbox/dead/{id}/discard`: the event is gone for good.
pub async fn discard<DB: Database>(State(outbox): State<Outbox<DB>>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse::<Uuid>() else { return unknown() };
    let discarded = outbox.discard(id).await;
    outbox.wake();
    answer(discarded)
}

fn answer(done: Result<bool, idempotency::Error>) -> Response {
    match done {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => unknown(),
        Err(error) => failed(&error),
    }
}

fn unknown() -> Response {
    Problem::new(StatusCode::NOT_FOUND, "No event with this id is dead or blocked.").into_response()
}

fn failed(error: &idempotency::Error) -> Response {
    tracing::error!(error = error as &dyn std::error::Error, "the outbox could not be asked");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "The outbox cannot be asked just now.").into_response()
}
