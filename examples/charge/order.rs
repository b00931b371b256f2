//! An order of three steps: reserve here, charge the card there, send the receipt there. Whatever stops it, the next
//! attempt goes on after the last step that is recorded.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use idempotency::Attempt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::auth::Principal;
use crate::card::Card;
use crate::journal::Progress;
use crate::problem::Failed;
use crate::service::Service;

#[derive(Deserialize)]
pub struct Order {
    amount: i64,
    card: String,
}

#[derive(Serialize, sqlx::FromRow)]
pub struct Row {
    id: String,
    amount: i64,
    charge: Option<String>,
    receipt: Option<String>,
}

/// `POST /orders`
pub async fn create(
    State(service): State<Service>,
    Extension(Principal(owner)): Extension<Principal>,
    attempt: Attempt,
    Json(order): Json<Order>,
) -> Response {
    match run(&service, &owner, &attempt, &order).await {
        Ok(progress) => {
            let body = json!({ "id": progress.order, "amount": order.amount, "charge": progress.charge,
                "receipt": progress.receipt });
            (StatusCode::CREATED, Json(body)).into_response()
        }
        Err(failed) => failed.into_response(),
    }
}

async fn run(service: &Service, owner: &str, attempt: &Attempt, order: &Order) -> Result<Progress, Failed> {
    let Service { pool, network, journal } = service;
    let card = Card::new(&order.card, attempt);
    // The same for every attempt.
    let id = attempt.derive("order").to_string();
    let mut progress = journal.resume(attempt, pool).await?;

    if progress.order.is_none() {
        progress.order = Some(id.clone());
        let mut tx = pool.begin().await?;
        sqlx::query("INSERT INTO orders (id, owner, amount) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING")
            .bind(&id)
            .bind(owner)
            .bind(order.amount)
            .execute(&mut *tx)
            .await?;
        journal.keep(attempt, &mut tx, "reserved", &progress).await?;
        card.at("reserving").await;
        tx.commit().await?;
        card.at("reserved").await;
    }

    let charge = if let Some(charge) = &progress.charge {
        charge.clone()
    } else {
        let asked = json!({ "order": id, "amount": order.amount, "card": order.card });
        let charge = network.keyed("/charges", attempt.derive("charge"), &asked).await?;
        // Charged, and nobody here knows: the next attempt asks again under the same key.
        card.at("charged").await;
        progress.charge = Some(charge.clone());
        let mut tx = pool.begin().await?;
        journal.keep(attempt, &mut tx, "charged", &progress).await?;
        sqlx::query("UPDATE orders SET charge = ? WHERE id = ?").bind(&charge).bind(&id).execute(&mut *tx).await?;
        tx.commit().await?;
        card.at("recorded").await;
        charge
    };

    if progress.receipt.is_none() {
        let asked = json!({ "order": id, "charge": charge });
        let receipt = network.keyed("/receipts", attempt.derive("receipt"), &asked).await?;
        card.at("receipted").await;
        progress.receipt = Some(receipt.clone());
        let mut tx = pool.begin().await?;
        journal.keep(attempt, &mut tx, "receipted", &progress).await?;
        sqlx::query("UPDATE orders SET receipt = ? WHERE id = ?").bind(receipt).bind(&id).execute(&mut *tx).await?;
        tx.commit().await?;
        // All is done, and the client has no answer.
        card.at("done").await;
    }
    Ok(progress)
}

/// `GET /orders`
pub async fn list(State(service): State<Service>, Extension(Principal(owner)): Extension<Principal>) -> Response {
    let rows =
        sqlx::query_as::<_, Row>("SELECT id, amount, charge, receipt FROM orders WHERE owner = ? ORDER BY rowid")
            .bind(owner)
            .fetch_all(&service.pool)
            .await;
    rows.map(Json).map_err(Failed::from).into_response()
}
