//! What the methods do. Each may be repeated: what it makes of a document is the same after one run and after two.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_LOCATION, CONTENT_TYPE, ETAG};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response, Result};
use idempotency::precondition::versioned::{Written, judge};
use idempotency::precondition::{Preconditions, Refusal, Verdict, Version};
use idempotency::{RetryLater, Tx};
use sqlx::Pool;
use uuid::Uuid;

use crate::database::{Database, Document, Name};
use crate::object::Object;
use crate::problem::{Problem, failed};
use crate::router::Principal;
use crate::write::Write;

/// How often a write is judged anew that lost a race and may still go through: `If-Match: *`, or a DELETE without.
const TRIES: u32 = 5;

fn name(Extension(Principal(owner)): Extension<Principal>, Path(id): Path<String>) -> Result<Name, Problem> {
    // Different spellings of one UUID are one document.
    let id: Uuid = id.parse().map_err(|_| Problem::new(StatusCode::NOT_FOUND, "The name of a document is a UUID."))?;
    Ok(Name { owner, id: id.to_string() })
}

/// 304 is the work of the `PreconditionLayer`.
pub async fn read<DB: Database>(
    principal: Extension<Principal>,
    id: Path<String>,
    State(pool): State<Pool<DB>>,
) -> Result<Response> {
    let name = name(principal, id)?;
    match DB::find(&pool, &name).await.map_err(|error| failed::<DB>(&error))? {
        Some(document) => Ok(shown(StatusCode::OK, &name, document)),
        None => Err(Problem::not_found().into()),
    }
}

/// Creates or replaces.
pub async fn put<DB: Database>(
    principal: Extension<Principal>,
    id: Path<String>,
    preconditions: Preconditions,
    write: Write<DB>,
) -> Result<Response> {
    let name = name(principal, id)?;
    Object::parse(&write.body)?;
    let mut tx = write.begin().await?;
    let new = Document { version: Version::new(), body: write.body.into() };
    for _ in 0..TRIES {
        let current = DB::read(&mut tx, &name).await.map_err(|error| failed::<DB>(&error))?;
        let version = current.map(|document| document.version);
        permit(&preconditions, version)?;
        let Some(version) = version else {
            // The unique index is what keeps two writers from creating one document.
            return match DB::insert(&mut tx, &name, &new).await {
                Ok(()) => Ok(shown(StatusCode::CREATED, &name, new)),
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                    Err(if preconditions.creates_only() { Refusal::Failed.into() } else { RetryLater.into() })
                }
                Err(error) => Err(failed::<DB>(&error).into()),
            };
        };
        if replace(&mut tx, &name, version, &new).await? == Written::Ok {
            return Ok(shown(StatusCode::OK, &name, new));
        }
    }
    Err(RetryLater.into())
}

/// Sets members.
pub async fn patch<DB: Database>(
    principal: Extension<Principal>,
    id: Path<String>,
    preconditions: Preconditions,
    write: Write<DB>,
) -> Result<Response> {
    let name = name(principal, id)?;
    let mut tx = write.begin().await?;
    for _ in 0..TRIES {
        let current = DB::read(&mut tx, &name).await.map_err(|error| failed::<DB>(&error))?;
        // Whatever the preconditions (RFC 9110 section 13.2.1), and so for a body that is wrong.
        let Some(current) = current else { return Err(Problem::not_found().into()) };
        let body = Object::patched(&current.body, &write.body)?;
        permit(&preconditions, Some(current.version))?;
        let new = Document { version: Version::new(), body };
        if replace(&mut tx, &name, current.version, &new).await? == Written::Ok {
            return Ok(shown(StatusCode::OK, &name, new));
        }
    }
    Err(RetryLater.into())
}

/// Ensures absence. What is absent is as it should be, also where `If-Match` names what was there: the likely cause is
/// this very request, an attempt ago (RFC 9110 section 13.1.1).
pub async fn delete<DB: Database>(
    principal: Extension<Principal>,
    id: Path<String>,
    preconditions: Preconditions,
    mut tx: Tx<DB>,
) -> Result<StatusCode> {
    let name = name(principal, id)?;
    for _ in 0..TRIES {
        let current = DB::read(&mut tx, &name).await.map_err(|error| failed::<DB>(&error))?;
        let Some(current) = current else { return Ok(StatusCode::NO_CONTENT) };
        permit(&preconditions, Some(current.version))?;
        let rows = DB::delete(&mut tx, &name, current.version).await.map_err(|error| failed::<DB>(&error))?;
        if rows > 0 {
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    Err(RetryLater.into())
}

fn permit(preconditions: &Preconditions, version: Option<Version>) -> Result<(), Refusal> {
    match preconditions.judge(version.map(|version| version.to_current()).as_ref()) {
        Verdict::Proceed => Ok(()),
        Verdict::NotModified | Verdict::Failed => Err(Refusal::Failed),
    }
}

/// The check inside the write: only the version that was judged is replaced.
async fn replace<DB: Database>(tx: &mut Tx<DB>, name: &Name, judged: Version, new: &Document) -> Result<Written> {
    let rows = DB::update(tx, name, judged, new).await.map_err(|error| failed::<DB>(&error))?;
    let current = match rows {
        0 => DB::read(tx, name).await.map_err(|error| failed::<DB>(&error))?.map(|document| document.version),
        _ => None,
    };
    Ok(judge(rows, current))
}

/// The document itself, byte for byte, with the tag of these bytes.
fn shown(status: StatusCode, name: &Name, document: Document) -> Response {
    let headers = [
        (ETAG, document.version.to_tag().to_header_value()),
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
    ];
    (status, headers, [(CONTENT_LOCATION, format!("/documents/{}", name.id))], document.body).into_response()
}
