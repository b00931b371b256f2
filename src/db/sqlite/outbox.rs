//! The outbox on SQLite: every SQL text, and how they are run.
//!
//! SQLite has one writer. Relays read without the write lock and wait for it in a queue of this process, then with short
//! retries against others.

mod post;
mod queue;
mod sql;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, SqlSafeStr, Sqlite, SqliteConnection};

use crate::db::outbox::columns::event_row;
use crate::db::outbox::{NewEvent, OutboxDialect, Rows};
use crate::db::sql::repeated;
use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;

impl OutboxDialect for Sqlite {
    type Rows = SqliteRows;
    type Queue = queue::SqliteQueue;
}

/// Of one file.
#[expect(unnameable_types, reason = "part of the sealed trait `OutboxDialect`")]
#[derive(Clone, Copy, Debug)]
pub struct SqliteRows;

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

fn bound<'q>(query: Bound<'q>, new: &'q NewEvent<'q>) -> Bound<'q> {
    let trace = new.trace.as_ref();
    query
        .bind(new.bucket.number())
        .bind(new.id.to_string())
        .bind(&new.event.destination)
        .bind(&new.event.topic)
        .bind(&new.event.key)
        .bind(&new.event.kind)
        .bind(&new.event.source)
        .bind(&new.event.content_type)
        .bind(&new.payload[..])
        .bind(&new.headers)
        .bind(trace.map(|trace| trace.traceparent.as_str()))
        .bind(trace.and_then(|trace| trace.tracestate.as_deref()))
}

impl Rows for SqliteRows {
    type Engine = Sqlite;

    fn named(schema: Option<&str>, _: bool) -> Result<Self, Error> {
        match schema {
            None => Ok(Self),
            Some(_) => Err(Error::with_source(ErrorKind::Setup, "SQLite has no schemas")),
        }
    }

    async fn insert(&self, connection: &mut SqliteConnection, events: &[NewEvent<'_>]) -> Result<(), sqlx::Error> {
        let text = repeated(&sql::INSERT.into_sql_str(), sql::ROW, ", ", events.len());
        let query = events.iter().fold(sqlx::query(text).persistent(events.len() == 1), bound);
        query.execute(connection).await.map(drop)
    }

    async fn defer(&self, connection: &mut SqliteConnection, events: &[NewEvent<'_>]) -> Result<(), sqlx::Error> {
        let text = repeated(&sql::DEFER.into_sql_str(), sql::DEFERRED_ROW, ", ", events.len());
        let query = sqlx::query(text).persistent(events.len() == 1);
        let query = events.iter().fold(query, |query, new| bound(query, new).bind(new.due));
        query.execute(connection).await.map(drop)
    }

    fn is_duplicate(error: &sqlx::Error) -> bool {
        // UNIQUE, PRIMARYKEY.
        matches!(error, sqlx::Error::Database(error) if matches!(error.code().as_deref(), Some("2067" | "1555")))
    }

    async fn pending(&self, connection: &mut SqliteConnection, most: u32) -> Result<Vec<PendingEvent>, sqlx::Error> {
        sqlx::query(sql::FIRST).bind(most).fetch_all(connection).await?.iter().map(event).collect()
    }
}

fn text(row: &SqliteRow, column: &str) -> Result<String, sqlx::Error> {
    row.try_get(column)
}

fn texts(row: &SqliteRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    row.try_get(column)
}

/// A row whose columns are those of an event.
fn event(row: &SqliteRow) -> Result<PendingEvent, sqlx::Error> {
    event_row!(row, text, texts)
}
