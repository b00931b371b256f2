//! What all requests share, and what their senders are told.

use std::sync::Arc;

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use idempotency::inbox::{Inbox, Processed};
use sqlx::Pool;

use crate::counts::Counts;
use crate::database::Database;
use crate::delivery;
use crate::problem::Problem;
use crate::signature::Verifier;

pub struct Service<DB: Database> {
    pub pool: Pool<DB>,
    pub inbox: Inbox<DB>,
    pub verifier: Arc<Verifier>,
    pub counts: Arc<Counts>,
}

impl<DB: Database> Clone for Service<DB> {
    fn clone(&self) -> Self {
        let Self { pool, inbox, verifier, counts } = self;
        Self { pool: pool.clone(), inbox: inbox.clone(), verifier: Arc::clone(verifier), counts: Arc::clone(counts) }
    }
}

impl<DB: Database> Service<DB> {
    pub fn router(self) -> axum::Router {
        axum::Router::new()
            .route("/webhooks/psp", post(delivery::receive::<DB>))
            .route("/balances", get(balances::<DB>))
            .route("/inbox", get(async |State(service): State<Self>| Json(service.counts.as_json())))
            .route("/healthz", get(async || "ok"))
            .method_not_allowed_fallback(async || Problem::new(StatusCode::METHOD_NOT_ALLOWED, "See the field Allow."))
            .fallback(async || Problem::new(StatusCode::NOT_FOUND, "There is no such resource."))
            .layer(DefaultBodyLimit::max(delivery::LARGEST))
            .with_state(self)
    }

    /// Counts what became of a delivery and tells its sender.
    pub fn answer(&self, processed: &Processed<()>) -> Result<Response, Problem> {
        let counts = &self.counts;
        match processed {
            Processed::First(()) => counts.first.add(),
            Processed::Duplicate => counts.duplicate.add(),
            Processed::Busy { .. } => {
                counts.busy.add();
                return Err(Problem::later(1));
            }
            Processed::Conflict => {
                counts.conflict.add();
                let detail = "Another body was delivered under this webhook-id before.";
                return Err(Problem::new(StatusCode::CONFLICT, detail));
            }
            // Nobody counts failures here.
            Processed::Poison => {
                let detail = "The event has failed too often.";
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
            }
        }
        // A first delivery and a duplicate look the same: the sender is to send it no more.
        Ok(Json(serde_json::json!({ "received": true })).into_response())
    }
}

async fn balances<DB: Database>(State(service): State<Service<DB>>) -> Response {
    match DB::balances(&service.pool).await {
        Ok(balances) => Json(balances).into_response(),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a statement failed");
            Problem::later(1).into_response()
        }
    }
}
