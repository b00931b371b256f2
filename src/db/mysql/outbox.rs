//! The outbox on MySQL and MariaDB: every SQL text, and how they are run.

mod operate;
mod queue;
mod relays;
pub(super) mod sql;

use std::sync::Arc;

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection, Row, SqlStr};

use super::says_duplicate;
use crate::db::outbox::columns::event_row;
use crate::db::outbox::{NewEvent, OutboxDialect, Rows};
use crate::db::sql::{SchemaName, expand, repeated};
use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;
use sql::Texts;

impl OutboxDialect for MySql {
    type Rows = MySqlRows;
    type Queue = queue::MySqlQueue;
}

/// Of one database.
#[expect(unnameable_types, reason = "part of the sealed trait `OutboxDialect`")]
#[derive(Clone, Debug)]
pub struct MySqlRows {
    texts: Arc<Texts>,
}

impl MySqlRows {
    fn of(schema: Option<&SchemaName>) -> Self {
        Self { texts: Arc::new(Texts::new(|template| expand(template, schema))) }
    }
}

fn bound<'q>(query: Query<'q, MySql, MySqlArguments>, new: &'q NewEvent<'q>) -> Query<'q, MySql, MySqlArguments> {
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

/// For this many rows. Statements for one row stay prepared, those for more are hardly ever the same.
fn rows<'q>(text: &SqlStr, row: &'static str, count: usize) -> Query<'q, MySql, MySqlArguments> {
    sqlx::query(repeated(text, row, ", ", count)).persistent(count == 1)
}

impl Rows for MySqlRows {
    type Engine = MySql;

    fn named(schema: Option<&str>, _: bool) -> Result<Self, Error> {
        let schema = match schema {
            None => None,
            Some(name) => Some(
                SchemaName::mysql(name)
                    .ok_or_else(|| Error::with_source(ErrorKind::Setup, "not a name for a database"))?,
            ),
        };
        Ok(Self::of(schema.as_ref()))
    }

    async fn insert(&self, connection: &mut MySqlConnection, events: &[NewEvent<'_>]) -> Result<(), sqlx::Error> {
        let query = events.iter().fold(rows(&self.texts.insert, sql::ROW, events.len()), bound);
        query.execute(connection).await.map(drop)
    }

    async fn defer(&self, connection: &mut MySqlConnection, events: &[NewEvent<'_>]) -> Result<(), sqlx::Error> {
        let query = rows(&self.texts.defer, sql::DEFERRED_ROW, events.len());
        let query = events.iter().fold(query, |query, new| bound(query, new).bind(new.due));
        query.execute(connection).await.map(drop)
    }

    fn is_duplicate(error: &sqlx::Error) -> bool {
        says_duplicate(error)
    }

    async fn pending(&self, connection: &mut MySqlConnection, most: u32) -> Result<Vec<PendingEvent>, sqlx::Error> {
        let query = sqlx::query(self.texts.first.clone()).bind(most);
        query.fetch_all(connection).await?.iter().map(event).collect()
    }
}

/// Of a column whose collation compares bytes, which sqlx takes for bytes.
fn text(row: &MySqlRow, column: &str) -> Result<String, sqlx::Error> {
    row.try_get_unchecked(column)
}

fn texts(row: &MySqlRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    row.try_get_unchecked(column)
}

/// A row whose columns are those of an event.
fn event(row: &MySqlRow) -> Result<PendingEvent, sqlx::Error> {
    event_row!(row, text, texts)
}
