//! Payments whose keys are leases: the handler has a transaction of its own, and may run again after a crash.

use axum::Extension;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency::{Attempt, ErrorKind, RetryLater};
use sqlx::Pool;

use crate::database::Kind;
use crate::leases::Leases;
use crate::money::{Order, Payment};
use crate::problem::{self, Problem};
use crate::router::{Principal, answer, ask, now, wrong};

/// Whether the keys are in the same database as the payments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Beside,
    Elsewhere,
}

/// Asks the card first and writes then, so that the transaction is short: a guard locks the key's row until it ends.
pub async fn create<DB: Leases>(
    Extension(Principal(owner)): Extension<Principal>,
    attempt: Attempt,
    pool: Pool<DB>,
    body: Bytes,
    (kind, place): (Kind, Place),
) -> Response {
    let (order, card) = match Order::parse(&body) {
        Ok(order) => order,
        Err(what) => return wrong(what).into_response(),
    };
    if let Err(refusal) = ask(card).await {
        return refusal.into_response();
    }
    let Order { amount, currency, card: card_text, reference } = order;
    // Every attempt has the same id: whatever came of the last one, there is one row.
    let id = attempt.derive(kind.path()).to_string();
    let payment = Payment { id, amount, currency, card: card_text, reference, created_at: now() };
    match store(&pool, &attempt, &owner, kind, &payment, place).await {
        Ok(stored) => answer(card, kind, &stored),
        Err(Failed::Key(error)) => no_key(&error),
        Err(Failed::Statement(error)) => problem::failed::<DB>(&error),
    }
}

enum Failed {
    Key(idempotency::Error),
    Statement(sqlx::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

/// The payment as it stands: an earlier attempt's if there was one, so that all of them give the same answer.
async fn store<DB: Leases>(
    pool: &Pool<DB>,
    attempt: &Attempt,
    owner: &str,
    kind: Kind,
    payment: &Payment,
    place: Place,
) -> Result<Payment, Failed> {
    let mut transaction = pool.begin().await?;
    if place == Place::Beside {
        DB::guard(attempt, &mut transaction).await.map_err(Failed::Key)?;
    }
    let stored = DB::insert_once(&mut transaction, owner, kind, payment).await?;
    transaction.commit().await?;
    Ok(stored)
}

fn no_key(error: &idempotency::Error) -> Response {
    match error.kind() {
        // Whoever has lost its lease changes nothing, and the layer tells its client so.
        ErrorKind::LeaseLost | ErrorKind::Unavailable | ErrorKind::Conflict => RetryLater.into_response(),
        _ => {
            tracing::error!(error = error as &dyn std::error::Error, "the key could not be guarded");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The payment could not be stored.").into_response()
        }
    }
}
