//! The operation, in the claim's transaction and under a lease.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use idempotency::{Attempt, LeaseDialect, RetryLater, Tx};
use sha2::{Digest, Sha256};
use sqlx::{Pool, Transaction};
use tokio::time::sleep;

use super::{LEASE, Order, RUN, Sort, Told};
use crate::Failure;
use crate::effects::{Effect, Effects};

/// Hexadecimal SHA-256.
pub fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The answer of one run: no other run gives the same.
fn answer(order: &Order) -> Result<Bytes, serde_json::Error> {
    let (run, filler) = (uuid::Uuid::new_v4().to_string(), "x".repeat(order.filler));
    serde_json::to_vec(&Told { operation: order.operation, run, filler }).map(Bytes::from)
}

/// With a header field of its own: an answer is more than its body.
fn respond(status: StatusCode, body: Bytes) -> Response {
    match serde_json::from_slice::<Told>(&body) {
        Ok(told) => (status, [(RUN, told.run)], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn work(millis: u64) {
    if millis > 0 {
        sleep(Duration::from_millis(millis)).await;
    }
}

/// With the store's transaction: whatever fails, nothing is kept.
pub async fn in_the_claims_transaction<DB: Effects>(mut tx: Tx<DB>, Json(order): Json<Order>) -> Response {
    work(order.before).await;
    let Ok(body) = answer(&order) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let effect = Effect { operation: order.operation, fence: 0, digest: digest(&body) };
    if let Err(error) = DB::write(&mut tx, &effect).await {
        tracing::info!(%error, "the effect was not written");
        return RetryLater.into_response();
    }
    work(order.after).await;
    match order.sort {
        Sort::Declined => respond(StatusCode::PAYMENT_REQUIRED, body),
        Sort::Flaky if rand::random_bool(0.4) => {
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], "not now").into_response()
        }
        _ => respond(StatusCode::CREATED, body),
    }
}

/// With a lease: what is written is no part of the claim.
pub async fn under_a_lease<DB: Effects + LeaseDialect>(
    State(pool): State<Pool<DB>>,
    attempt: Attempt,
    Json(order): Json<Order>,
) -> Response
where
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    work(order.before).await;
    match write(&pool, &attempt, &order).await {
        Ok(body) => {
            work(order.after).await;
            respond(StatusCode::CREATED, body)
        }
        Err(error) => {
            tracing::info!(error, "the effect was not written");
            // It may have been, and only the answer was lost. The key is kept as long as if this process had died, so that
            // whoever runs twice has waited for a lease.
            sleep(LEASE).await;
            RetryLater.into_response()
        }
    }
}

async fn write<DB: Effects + LeaseDialect>(
    pool: &Pool<DB>,
    attempt: &Attempt,
    order: &Order,
) -> Result<Bytes, Failure> {
    if let Some(done) = attempt.resume::<String>()? {
        return Ok(done.state.into());
    }
    let body = answer(order)?;
    let fence = attempt.fence().map_or(0, |fence| fence.0.try_into().unwrap_or(i64::MAX));
    let effect = Effect { operation: order.operation, fence, digest: digest(&body) };
    if order.sort == Sort::Plain {
        let mut connection = pool.acquire().await?;
        DB::write(&mut connection, &effect).await?;
        return Ok(body);
    }
    let mut transaction: Transaction<'_, DB> = pool.begin().await?;
    if order.sort == Sort::Checkpointed {
        attempt.checkpoint(&mut transaction, "done", &std::str::from_utf8(&body)?).await?;
    } else {
        attempt.guard(&mut transaction).await?;
    }
    DB::write(&mut transaction, &effect).await?;
    transaction.commit().await?;
    Ok(body)
}
