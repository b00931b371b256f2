//! What is more than one statement: in one transaction under READ COMMITTED, every row by its primary key.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::sql::Texts;
use super::text;
use crate::db::lease::microseconds;
use crate::db::mysql::call::Bound;
use crate::db::outbox::columns::{count, id, json, place, triples};
use crate::outbox::Place;
use crate::purge::Batch;

/// Of an attempt: how many to add, whether it is blocked, the wait in microseconds, what was said.
pub(super) type Recorded = (i32, bool, i64, String);

/// By bucket, number and id.
pub(super) fn of(query: Bound, place: Place, id: Uuid) -> Bound {
    query.bind(place.bucket.number()).bind(place.seq).bind(id.to_string())
}

/// Whether the fence holds; until the end of the transaction, then.
pub(super) async fn holds(connection: &mut MySqlConnection, fence: Bound) -> Result<bool, sqlx::Error> {
    Ok(fence.fetch_optional(connection).await?.is_some())
}

pub(super) async fn record(
    connection: &mut MySqlConnection,
    texts: &Texts,
    (at, of_event): (Place, Uuid),
    (added, blocked, wait, error): Recorded,
) -> Result<Option<u32>, sqlx::Error> {
    let record = sqlx::query(texts.record.clone()).bind(added).bind(blocked).bind(wait).bind(error);
    let inserted = of(record, at, of_event).bind(added).execute(&mut *connection).await?;
    if inserted.rows_affected() == 0 {
        return Ok(None);
    }
    let row = of(sqlx::query(texts.attempts.clone()), at, of_event).fetch_optional(connection).await?;
    row.map(|row| Ok(count(row.try_get::<i32, _>(0)?.into()))).transpose()
}

pub(super) async fn park(
    connection: &mut MySqlConnection,
    texts: &Texts,
    (at, of_event): (Place, Uuid),
    (attempts, error): (u32, String),
) -> Result<bool, sqlx::Error> {
    let bury = of(sqlx::query(texts.bury.clone()).bind(attempts).bind(error), at, of_event);
    if bury.execute(&mut *connection).await?.rows_affected() == 0 {
        return Ok(false);
    }
    delete(connection, texts, [(at, of_event)]).await?;
    Ok(true)
}

pub(super) async fn delete(
    connection: &mut MySqlConnection,
    texts: &Texts,
    rows: impl IntoIterator<Item = (Place, Uuid)>,
) -> Result<(), sqlx::Error> {
    sqlx::query(texts.delete.clone()).bind(triples(rows)).execute(connection).await.map(drop)
}

pub(super) async fn promote(connection: &mut MySqlConnection, texts: &Texts, most: u32) -> Result<u64, sqlx::Error> {
    let rows = sqlx::query(texts.due.clone()).bind(most).fetch_all(&mut *connection).await?;
    let due: Result<Vec<i64>, _> = rows.iter().map(|row| row.try_get("n")).collect();
    let due = json(due?).to_string();
    sqlx::query(texts.promote.clone()).bind(due.clone()).execute(&mut *connection).await?;
    sqlx::query(texts.delete_deferred.clone()).bind(due).execute(connection).await?;
    Ok(rows.len() as u64)
}

pub(super) async fn discard_failing(
    connection: &mut MySqlConnection,
    texts: &Texts,
    of_event: Uuid,
) -> Result<bool, sqlx::Error> {
    let find = sqlx::query(texts.find_failing.clone()).bind(of_event.to_string());
    let rows = find.fetch_all(&mut *connection).await?;
    let found: Vec<_> = rows.iter().map(found).collect::<Result<_, _>>()?;
    let any = !found.is_empty();
    delete(connection, texts, found).await?;
    Ok(any)
}

/// Takes the dead letters that `lock` finds; `back` into the table of pending events.
pub(super) async fn take_dead(
    connection: &mut MySqlConnection,
    texts: &Texts,
    lock: Bound,
    back: bool,
) -> Result<u64, sqlx::Error> {
    let rows = lock.fetch_all(&mut *connection).await?;
    let ids: Result<Vec<String>, _> = rows.iter().map(|row| text(row, "id")).collect();
    let ids = json(ids?).to_string();
    if back {
        sqlx::query(texts.redrive_dead.clone()).bind(ids.clone()).execute(&mut *connection).await?;
    }
    sqlx::query(texts.delete_dead.clone()).bind(ids).execute(connection).await?;
    Ok(rows.len() as u64)
}

/// Deletes dead letters that are older than this.
pub(super) async fn purge_dead(
    connection: &mut MySqlConnection,
    texts: &Texts,
    older_than: Duration,
    most: u32,
) -> Result<Batch, sqlx::Error> {
    let age = microseconds(older_than);
    let lock = sqlx::query(texts.lock_old_dead.clone()).bind(age).bind(age).bind(most);
    let rows = lock.fetch_all(&mut *connection).await?;
    let ids: Vec<String> = rows.iter().map(|row| text(row, "id")).collect::<Result<_, _>>()?;
    let overdue: Vec<i64> = rows.iter().map(|row| row.try_get("overdue")).collect::<Result<_, _>>()?;
    if !ids.is_empty() {
        sqlx::query(texts.delete_dead.clone()).bind(json(ids).to_string()).execute(connection).await?;
    }
    Ok(Batch::of(overdue))
}

/// Deletes what is left of members and of at most so many events that are gone, and returns how many events that is. What
/// was recorded of an event is looked for without a lock: an event that is gone does not come back to its place.
pub(super) async fn forget_left(
    connection: &mut MySqlConnection,
    texts: &Texts,
    most: u32,
) -> Result<u64, sqlx::Error> {
    sqlx::query(texts.forget_members.clone()).execute(&mut *connection).await?;
    let rows = sqlx::query(texts.left_failures.clone()).bind(most).fetch_all(&mut *connection).await?;
    let left: Vec<_> = rows.iter().map(found).collect::<Result<_, _>>()?;
    if left.is_empty() {
        return Ok(0);
    }
    let forget = sqlx::query(texts.forget_failures.clone()).bind(triples(left));
    Ok(forget.execute(connection).await?.rows_affected())
}

/// The row of an event, and the event.
pub(super) fn found(row: &MySqlRow) -> Result<(Place, Uuid), sqlx::Error> {
    Ok((place(row.try_get("bucket")?, row.try_get("seq")?)?, id(&text(row, "id")?)?))
}
