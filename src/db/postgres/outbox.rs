//! The outbox on Postgres: every SQL text, and how they are run.
//!
//! Each call is one statement. Where rows are fought for they are stepped over (SKIP LOCKED), and where a fence is compared
//! its row is locked, so that nobody takes the bucket before the statement is done.

mod queue;
pub(super) mod sql;

use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row, SqlStr};

use crate::db::lease::Answer;
use crate::db::outbox::columns::event_row;
use crate::db::outbox::{NewEvent, OutboxDialect, Rows};
use crate::db::sql::{SchemaName, expand};
use crate::error::{Error, ErrorKind};
use crate::outbox::{PendingEvent, TraceContext};
use sql::Texts;

impl OutboxDialect for Postgres {
    type Rows = PostgresRows;
    type Queue = queue::PostgresQueue;
}

/// Of one schema.
#[expect(unnameable_types, reason = "part of the sealed trait `OutboxDialect`")]
#[derive(Clone, Debug)]
pub struct PostgresRows {
    texts: Arc<Texts>,
    /// Off where the pool keeps no statement cache: named statements would pile up on the server (S10).
    persistent: bool,
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

impl PostgresRows {
    fn of(schema: Option<&SchemaName>, persistent: bool) -> Self {
        Self { texts: Arc::new(Texts::new(|template| expand(template, schema))), persistent }
    }

    fn query<'q>(&self, text: &SqlStr) -> Bound<'q> {
        sqlx::query(text.clone()).persistent(self.persistent)
    }

    /// One array a column.
    fn all<'q>(&self, text: &SqlStr, events: &'q [NewEvent<'q>]) -> Bound<'q> {
        macro_rules! column {
            ($of:expr) => {
                events.iter().map($of).collect::<Vec<_>>()
            };
        }
        self.query(text)
            .bind(column!(|new| i16::from(new.bucket.number())))
            .bind(column!(|new| new.id.to_string()))
            .bind(column!(|new| new.event.destination.as_str()))
            .bind(column!(|new| new.event.topic.as_str()))
            .bind(column!(|new| new.event.key.as_deref()))
            .bind(column!(|new| new.event.kind.as_str()))
            .bind(column!(|new| new.event.source.as_str()))
            .bind(column!(|new| new.event.content_type.as_deref()))
            .bind(column!(|new| &new.payload[..]))
            .bind(column!(|new| new.headers.clone()))
            .bind(column!(|new| traceparent(new.trace.as_ref())))
            .bind(column!(|new| tracestate(new.trace.as_ref())))
    }
}

fn traceparent(trace: Option<&TraceContext>) -> Option<&str> {
    trace.map(|trace| trace.traceparent.as_str())
}

fn tracestate(trace: Option<&TraceContext>) -> Option<&str> {
    trace.and_then(|trace| trace.tracestate.as_deref())
}

impl Rows for PostgresRows {
    type Engine = Postgres;

    fn named(schema: Option<&str>, persistent: bool) -> Result<Self, Error> {
        let schema = match schema {
            None => None,
            Some(name) => Some(
                SchemaName::new(name).ok_or_else(|| Error::with_source(ErrorKind::Setup, "not a name for a schema"))?,
            ),
        };
        Ok(Self::of(schema.as_ref(), persistent))
    }

    async fn insert(&self, connection: &mut PgConnection, events: &[NewEvent<'_>]) -> Result<(), sqlx::Error> {
        let query = match events {
            [] => return Ok(()),
            [new] => self
                .query(&self.texts.insert)
                .bind(i16::from(new.bucket.number()))
                .bind(new.id.to_string())
                .bind(&new.event.destination)
                .bind(&new.event.topic)
                .bind(&new.event.key)
                .bind(&new.event.kind)
                .bind(&new.event.source)
                .bind(&new.event.content_type)
                .bind(&new.payload[..])
                .bind(&new.headers)
                .bind(traceparent(new.trace.as_ref()))
                .bind(tracestate(new.trace.as_ref())),
            events => self.all(&self.texts.insert_all, events),
        };
        query.execute(connection).await.map(drop)
    }

    async fn defer(&self, connection: &mut PgConnection, events: &[NewEvent<'_>]) -> Result<(), sqlx::Error> {
        let due: Vec<i64> = events.iter().map(|new| new.due.unwrap_or_default()).collect();
        self.all(&self.texts.defer, events).bind(due).execute(connection).await.map(drop)
    }

    fn is_duplicate(error: &sqlx::Error) -> bool {
        let sqlx::Error::Database(error) = error else { return false };
        // A trigger of the host's may run into a key of its own.
        error.code().as_deref() == Some("23505")
            && error
                .constraint()
                .is_some_and(|name| ["idempotency_outbox_id", "idempotency_outbox_deferred_pkey"].contains(&name))
    }

    fn pending(&self, connection: &mut PgConnection, most: u32) -> impl Answer<Vec<PendingEvent>> {
        let query = self.query(&self.texts.first).bind(i64::from(most));
        async move { query.fetch_all(connection).await?.iter().map(event).collect() }
    }
}

fn text(row: &PgRow, column: &str) -> Result<String, sqlx::Error> {
    row.try_get(column)
}

fn texts(row: &PgRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    row.try_get(column)
}

/// A row whose columns are those of an event.
fn event(row: &PgRow) -> Result<PendingEvent, sqlx::Error> {
    event_row!(row, text, texts)
}
