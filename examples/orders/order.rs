//! An order, and what becomes of it.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use idempotency::Tx;
use idempotency::outbox::{EnqueueError, Event, Outbox};
use serde::Deserialize;

use crate::database::Database;
use crate::destination;
use crate::problem::{self, Problem};
use crate::router::Principal;

/// What a client orders. Unknown members are ignored.
#[derive(Deserialize)]
pub struct Order {
    pub customer: String,
    pub sku: String,
    pub quantity: i64,
}

impl Order {
    fn parse(body: &[u8]) -> Result<Self, Problem> {
        let order: Self = serde_json::from_slice(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
            _ => Problem::new(StatusCode::BAD_REQUEST, error.to_string()),
        })?;
        let wrong = |what: &str| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what));
        if !(1..=100).contains(&order.customer.len()) || order.customer.contains('\0') {
            return wrong("customer: 1 to 100 bytes of text");
        }
        if !(1..=100).contains(&order.sku.len()) || order.sku.contains('\0') {
            return wrong("sku: 1 to 100 bytes of text");
        }
        if !(1..=1_000_000).contains(&order.quantity) {
            return wrong("quantity: 1 to 1000000");
        }
        Ok(order)
    }
}

/// Why an order could not be written.
enum Failed {
    Database(sqlx::Error),
    Enqueue(EnqueueError),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<EnqueueError> for Failed {
    fn from(error: EnqueueError) -> Self {
        Self::Enqueue(error)
    }
}

/// `POST /orders`: the order, its number and its event are one transaction, with the answer that is kept for the key.
pub async fn place<DB: Database>(
    Extension(Principal(_)): Extension<Principal>,
    State(outbox): State<Outbox<DB>>,
    mut tx: Tx<DB>,
    body: Bytes,
) -> Response {
    let order = match Order::parse(&body) {
        Ok(order) => order,
        Err(problem) => return problem.into_response(),
    };
    let id = uuid::Uuid::new_v4().to_string();
    let n = match write(&outbox, &mut tx, &id, &order).await {
        Ok(n) => n,
        Err(Failed::Database(error)) => return problem::failed::<DB>(&error),
        Err(Failed::Enqueue(error)) => return problem::not_enqueued::<DB>(&error),
    };
    let Order { customer, sku, quantity } = order;
    let location = format!("/orders/{id}");
    let body = serde_json::json!({ "id": id, "customer": customer, "sku": sku, "quantity": quantity, "n": n });
    (StatusCode::CREATED, [(LOCATION, location)], Json(body)).into_response()
}

async fn write<DB: Database>(outbox: &Outbox<DB>, tx: &mut Tx<DB>, id: &str, order: &Order) -> Result<i64, Failed> {
    // The customer's row is locked before the event gets its place: events of a customer stand in the order of `n`.
    let n = DB::count(tx, &order.customer).await?;
    DB::insert(tx, id, order, n).await?;
    let data = serde_json::json!({
        "customer": order.customer, "sku": order.sku, "quantity": order.quantity, "n": n,
    });
    let event = Event::new(destination::NAME, destination::TOPIC, "order.placed", "/orders")
        .key(&order.customer)
        .payload("application/json", data.to_string());
    outbox.enqueue(tx, &event).await?;
    Ok(n)
}
