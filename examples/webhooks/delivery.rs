//! One delivery: verified, taken up by the inbox, read, applied.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use idempotency::inbox::{Message, MessageId, Prepared, ProcessError, Processed};
use standardwebhooks::HEADER_WEBHOOK_ID;

use crate::database::Database;
use crate::event::Event;
use crate::problem::Problem;
use crate::service::Service;

/// The sender's name in the inbox: the format itself names no source.
const SENDER: &str = "psp";

/// The largest body that is read: far more than an event needs.
pub const LARGEST: usize = 1 << 20;

/// Why an event was not applied.
enum Failed {
    /// The event itself cannot be processed.
    Event,
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// `POST /webhooks/psp`. Whatever is not answered 2xx is delivered again.
pub async fn receive<DB: Database>(
    State(service): State<Service<DB>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let delivered = match body {
        Ok(body) => deliver(&service, &headers, &body).await,
        Err(rejection) => Err(unread(&rejection)),
    };
    delivered.unwrap_or_else(IntoResponse::into_response)
}

fn unread(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "A body has at most 1 MiB."),
        status => Problem::new(status, "The body has not arrived."),
    }
}

async fn deliver<DB: Database>(service: &Service<DB>, headers: &HeaderMap, body: &Bytes) -> Result<Response, Problem> {
    let id = message_id(headers)?;
    service.verifier.verify(headers, body)?;
    let message = Message::new(id, body);
    // The wait comes before the transaction, so that none is open meanwhile: on SQLite every other delivery would wait.
    let ready = match service.inbox.prepare(&message).await {
        Ok(Prepared::Ready(ready)) => ready,
        Ok(Prepared::Duplicate) => return service.answer(&Processed::Duplicate),
        Ok(Prepared::Busy { retry_after }) => return service.answer(&Processed::Busy { retry_after }),
        Ok(Prepared::Conflict) => return service.answer(&Processed::Conflict),
        Err(error) => return Err(failed::<DB>(service, &ProcessError::Inbox(error))),
    };
    // Read by now only: what an id was used for before is told by the bytes alone, whatever they say.
    let event = Event::parse(body)?;
    tokio::time::sleep(event.wait()).await;
    let applied = ready.process(async move |mut tx| match event {
        Event::Settled { payment, amount, .. } => Ok(DB::add(&mut tx, &payment, amount).await?),
        Event::Fail => Err(Failed::Event),
        Event::Other => Ok(()),
    });
    match applied.await {
        Ok(processed) => service.answer(&processed),
        Err(error) => Err(failed::<DB>(service, &error)),
    }
}

/// The id, byte for byte: it may be any text.
fn message_id(headers: &HeaderMap) -> Result<MessageId, Problem> {
    let wrong = |detail| Problem::new(StatusCode::BAD_REQUEST, detail);
    let mut lines = headers.get_all(HEADER_WEBHOOK_ID).iter();
    let id = lines.next().ok_or_else(|| wrong("The field webhook-id is missing."))?;
    if lines.next().is_some() {
        return Err(wrong("There is more than one webhook-id."));
    }
    MessageId::new(SENDER, id.as_bytes()).map_err(|_| wrong("The field webhook-id is empty."))
}

fn failed<DB: Database>(service: &Service<DB>, error: &ProcessError<Failed>) -> Problem {
    service.counts.failed.add();
    match error {
        ProcessError::Handler(Failed::Event) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The event could not be processed.")
        }
        ProcessError::Handler(Failed::Database(error)) if idempotency::is_retryable::<DB>(error) => Problem::later(1),
        ProcessError::Handler(Failed::Database(error)) => {
            tracing::error!(error = error as &dyn std::error::Error, "a statement failed");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The event could not be stored.")
        }
        ProcessError::Inbox(error) => {
            tracing::error!(error = error as &dyn std::error::Error, "the inbox failed");
            Problem::later(1)
        }
    }
}
