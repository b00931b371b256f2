//! The service: the same work with the layer and without.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idempotency::{IdempotencyLayer, PostgresStore, Scope, Tx};
use serde::Deserialize;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::Failure;

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    /// One permit for each slow request that has reached its handler.
    pub(crate) entered: Arc<Semaphore>,
    /// One permit lets one slow request go on.
    pub(crate) leave: Arc<Semaphore>,
}

#[derive(Deserialize)]
struct Payment {
    amount: i64,
    currency: String,
}

impl Service {
    pub(crate) async fn start(pool: PgPool) -> Result<Self, Failure> {
        let store = PostgresStore::new(pool.clone()).await?;
        store.migrate().await?;
        let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = {
            let (entered, leave) = (Arc::clone(&entered), Arc::clone(&leave));
            move |tx: Tx<Postgres>| async move {
                entered.add_permits(1);
                let _ = leave.acquire().await.map(tokio::sync::SemaphorePermit::forget);
                drop(tx);
                StatusCode::CREATED
            }
        };
        let guarded = Router::new().route("/guarded", post(guarded)).route("/slow", post(slow));
        let app = Router::new()
            .route("/bare", post(bare))
            .route("/rows/{id}", post(look_up).get(read))
            .route("/nothing", post(nothing))
            .merge(guarded.layer(IdempotencyLayer::new(store, Scope::shared())))
            .with_state(pool);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, entered, leave })
    }
}

/// One SELECT, one INSERT.
async fn pay(connection: &mut PgConnection, payment: &Payment) -> Result<Response, sqlx::Error> {
    let customer = payment.amount % 1000;
    let credit: i64 = sqlx::query_scalar("SELECT credit FROM customers WHERE id = $1")
        .bind(customer)
        .fetch_one(&mut *connection)
        .await?;
    if credit < payment.amount {
        return Ok(StatusCode::PAYMENT_REQUIRED.into_response());
    }
    let id: i64 = sqlx::query_scalar("INSERT INTO orders (customer, amount) VALUES ($1, $2) RETURNING id")
        .bind(customer)
        .bind(payment.amount)
        .fetch_one(&mut *connection)
        .await?;
    let answer = serde_json::json!({"id": id, "amount": payment.amount, "currency": payment.currency});
    Ok((StatusCode::CREATED, axum::Json(answer)).into_response())
}

async fn bare(State(pool): State<PgPool>, axum::Json(payment): axum::Json<Payment>) -> Response {
    let work = async {
        let mut transaction = pool.begin().await?;
        let answer = pay(&mut transaction, &payment).await?;
        transaction.commit().await?;
        Ok(answer)
    };
    work.await.unwrap_or_else(|error| failed(&error))
}

async fn guarded(mut tx: Tx<Postgres>, axum::Json(payment): axum::Json<Payment>) -> Response {
    pay(&mut tx, &payment).await.unwrap_or_else(|error| failed(&error))
}

async fn read(State(pool): State<PgPool>, Path(id): Path<i64>) -> Response {
    match sqlx::query_scalar::<_, Vec<u8>>("SELECT answer FROM answers WHERE id = $1").bind(id).fetch_one(&pool).await {
        Ok(answer) => ([("content-type", "application/json")], answer).into_response(),
        Err(error) => failed(&error),
    }
}

/// Takes a body that it reads as JSON, like a request that has one to replay.
async fn look_up(pool: State<PgPool>, id: Path<i64>, axum::Json(payment): axum::Json<Payment>) -> Response {
    std::hint::black_box(payment);
    read(pool, id).await
}

async fn nothing(body: axum::body::Bytes) -> StatusCode {
    std::hint::black_box(body);
    StatusCode::CONFLICT
}

fn failed(error: &sqlx::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}
