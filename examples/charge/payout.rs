//! A payout: the network knows no keys there, so a call whose end is unknown must not be sent again. The key is held
//! until an operator has looked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use idempotency::Attempt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::auth::Principal;
use crate::card::Card;
use crate::problem::Failed;
use crate::service::Service;

#[derive(Deserialize)]
pub struct Payout {
    amount: i64,
    card: String,
}

#[derive(Serialize, sqlx::FromRow)]
pub struct Row {
    id: String,
    amount: i64,
    payout: String,
}

/// `POST /payouts`
pub async fn create(
    State(service): State<Service>,
    Extension(Principal(owner)): Extension<Principal>,
    attempt: Attempt,
    Json(payout): Json<Payout>,
) -> Response {
    match run(&service, &owner, &attempt, &payout).await {
        Ok(made) => (StatusCode::CREATED, Json(made)).into_response(),
        Err(failed) => failed.into_response(),
    }
}

async fn run(service: &Service, owner: &str, attempt: &Attempt, payout: &Payout) -> Result<Row, Failed> {
    let card = Card::new(&payout.card, attempt);
    card.at("before").await;
    // From here on a crash, or no answer of the network, means: unknown.
    attempt.dispatching().await?;
    let asked = json!({ "amount": payout.amount, "card": payout.card });
    let made = service.network.unkeyed("/payouts", &asked).await?;
    card.at("paid").await;
    let row = Row { id: attempt.derive("payout").to_string(), amount: payout.amount, payout: made };
    let mut tx = service.pool.begin().await?;
    service.journal.guard(attempt, &mut tx).await?;
    sqlx::query("INSERT INTO payouts (id, owner, amount, payout) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING")
        .bind(&row.id)
        .bind(owner)
        .bind(row.amount)
        .bind(&row.payout)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(row)
}

/// `GET /payouts`
pub async fn list(State(service): State<Service>, Extension(Principal(owner)): Extension<Principal>) -> Response {
    let rows = sqlx::query_as::<_, Row>("SELECT id, amount, payout FROM payouts WHERE owner = ? ORDER BY rowid")
        .bind(owner)
        .fetch_all(&service.pool)
        .await;
    rows.map(Json).map_err(Failed::from).into_response()
}
