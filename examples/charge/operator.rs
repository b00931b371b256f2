//! What an operator does with keys that wait for somebody.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Entry, Kept, Operate, Operated};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::problem::{Failed, problem};

/// Attempts that have been running for longer are shown, too.
const LONG: Duration = Duration::from_secs(600);
const MOST: u32 = 1000;
/// How long an operator's word is kept.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The answer that later requests with the key get.
#[derive(Deserialize)]
pub struct Settle {
    status: u16,
    body: Value,
}

/// What names an entry in a path: its claim, so that a key which has moved on since is not found.
fn id(entry: &Entry) -> Option<String> {
    Some(uuid::Uuid::from_bytes(*entry.token?.as_bytes()).to_string())
}

/// `GET /stuck`
pub async fn list<S: Operate>(State(store): State<S>) -> Response {
    let shown = |entry: &Entry| {
        json!({ "id": id(entry), "state": format!("{:?}", entry.state), "attempt": entry.attempt,
            "scope": entry.lookup.scope().as_str(), "key": entry.lookup.key().as_str(),
            "endpoint": entry.lookup.endpoint().as_str(), "step": entry.step, "age_seconds": entry.age.as_secs() })
    };
    match store.list_stuck(LONG, MOST).await {
        Ok(entries) => Json(entries.iter().map(shown).collect::<Vec<_>>()).into_response(),
        Err(error) => Failed::from(error).into_response(),
    }
}

/// `POST /stuck/{id}/release`: it is known that nothing was done, so the next request runs.
pub async fn release<S: Operate>(State(store): State<S>, Path(id): Path<String>) -> Response {
    match find(&store, &id).await {
        Ok(entry) => told(store.release(&entry).await),
        Err(response) => response,
    }
}

/// `POST /stuck/{id}/settle`: it is known what was done, and this is the answer.
pub async fn settle<S: Operate>(
    State(store): State<S>,
    Path(id): Path<String>,
    Json(Settle { status, body }): Json<Settle>,
) -> Response {
    let Ok(status) = StatusCode::from_u16(status) else {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "status: not an HTTP status").into_response();
    };
    let entry = match find(&store, &id).await {
        Ok(entry) => entry,
        Err(response) => return response,
    };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let body = AnswerBody::Kept(body.to_string().into());
    let answer = Answer { status, headers, body, trailers: None };
    told(store.settle_as(&entry, Kept { answer, retention: RETENTION }).await)
}

async fn find<S: Operate>(store: &S, wanted: &str) -> Result<Entry, Response> {
    let entries = store.list_stuck(LONG, MOST).await.map_err(|error| Failed::from(error).into_response())?;
    let found = entries.into_iter().find(|entry| id(entry).as_deref() == Some(wanted));
    found.ok_or_else(|| problem(StatusCode::NOT_FOUND, "No such entry waits: look again.").into_response())
}

fn told(done: Result<Operated, idempotency::Error>) -> Response {
    match done {
        Ok(Operated::Done) => StatusCode::NO_CONTENT.into_response(),
        Ok(Operated::InProgress) => problem(StatusCode::CONFLICT, "An attempt is running.").into_response(),
        Ok(Operated::Changed) => problem(StatusCode::CONFLICT, "It has moved on: look again.").into_response(),
        Err(error) => Failed::from(error).into_response(),
    }
}
