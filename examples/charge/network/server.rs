//! A small card network, which keeps what it was told in memory. Charges and receipts have idempotency keys of their own
//! there; payouts have none: each call pays out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Value, json};

/// What the network has done.
#[derive(Default, Serialize)]
struct Ledger {
    charges: Vec<Value>,
    receipts: Vec<Value>,
    payouts: Vec<Value>,
    /// How many calls were answered as before, by their key.
    repeated: u64,
    /// Under path and key: the body that came with it, and the answer to it.
    #[serde(skip)]
    known: HashMap<(&'static str, String), (Value, Value)>,
}

type Shared = Arc<Mutex<Ledger>>;

/// The network's routes.
pub fn router() -> Router {
    Router::new()
        .route("/charges", post(|s, h, b| keyed("charge", s, h, b)))
        .route("/receipts", post(|s, h, b| keyed("receipt", s, h, b)))
        .route("/payouts", post(pay_out))
        .route("/ledger", get(ledger))
        .with_state(Shared::default())
}

async fn keyed(what: &'static str, ledger: State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "an idempotency key is needed").into_response();
    };
    if body["card"] == "declined" {
        return (StatusCode::PAYMENT_REQUIRED, "declined").into_response();
    }
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    match ledger.known.get(&(what, key.to_owned())) {
        Some((earlier, answer)) if *earlier == body => {
            let answer = answer.clone();
            ledger.repeated += 1;
            return Json(answer).into_response();
        }
        Some(_) => return (StatusCode::UNPROCESSABLE_ENTITY, "the key was used for something else").into_response(),
        None => {}
    }
    let entries = if what == "charge" { &mut ledger.charges } else { &mut ledger.receipts };
    let answer = json!({ "id": format!("{what}_{}", entries.len() + 1) });
    entries.push(json!({ "id": answer["id"], "key": key, "of": body }));
    ledger.known.insert((what, key.to_owned()), (body, answer.clone()));
    Json(answer).into_response()
}

async fn pay_out(ledger: State<Shared>, Json(body): Json<Value>) -> Response {
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    let id = format!("payout_{}", ledger.payouts.len() + 1);
    ledger.payouts.push(json!({ "id": id, "of": body }));
    Json(json!({ "id": id })).into_response()
}

async fn ledger(ledger: State<Shared>) -> Json<Value> {
    Json(json!(*ledger.lock().unwrap_or_else(PoisonError::into_inner)))
}
