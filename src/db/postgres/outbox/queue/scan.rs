//! Looks at the table of pending events.

use sqlx::postgres::PgRow;
use sqlx::{Row, SqlStr};

use super::{PostgresQueue, event, number, place};
use crate::db::begin::begin;
use crate::db::lease::microseconds;
use crate::db::outbox::Fence;
use crate::db::outbox::scan::{Lane, Scan, Span, begun};
use crate::db::postgres::sql::BEGIN;
use crate::db::sql::{Array, uncompiled, with_arrays};
use crate::outbox::{PendingEvent, Place};

/// The numbers of places, as two arrays.
fn places_of(places: &[Place]) -> [Array; 2] {
    [
        Array::of_numbers(places.iter().map(|place| number(place.bucket).into())),
        Array::of_numbers(places.iter().map(|place| place.seq)),
    ]
}

impl PostgresQueue {
    /// Planned anew each time, by how long the table is now: a plan that was made for a table of one page would read all of
    /// a long one. In one message, so that no pooler can send its halves to two servers.
    async fn look(&self, text: &SqlStr, arrays: &[Array]) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql(uncompiled(&with_arrays(text, arrays))).fetch_all(&self.pool).await
    }
}

impl Scan for PostgresQueue {
    async fn present(&self, spans: &[Span]) -> Result<Vec<Place>, sqlx::Error> {
        let buckets = Array::of_numbers(spans.iter().map(|span| number(span.bucket).into()));
        let after = Array::of_numbers(spans.iter().map(|span| span.after));
        let upto = Array::of_numbers(spans.iter().map(|span| span.upto));
        let rows = self.look(&self.rows.texts.present, &[buckets, after, upto]).await?;
        rows.iter().map(|row| place(row.try_get("bucket")?, row.try_get("seq")?)).collect()
    }

    async fn writers(&self, _spans: &[Span]) -> Result<Vec<String>, sqlx::Error> {
        let query = self.query(&self.rows.texts.writers).bind(self.schema.as_str().to_owned());
        self.fetch(query).await?.iter().map(|row| row.try_get("writer")).collect()
    }

    async fn newest(&self) -> Result<Option<i64>, sqlx::Error> {
        match self.fetch(self.query(&self.rows.texts.newest).bind(self.schema.as_str().to_owned())).await {
            Ok(rows) => rows.first().map_or(Ok(None), |row| row.try_get(0)),
            // A role that may insert need not be allowed to look at the sequence.
            Err(sqlx::Error::Database(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_all(&self, places: &[Place]) -> Result<Vec<PendingEvent>, sqlx::Error> {
        self.look(&self.rows.texts.read_all, &places_of(places)).await?.iter().map(event).collect()
    }

    async fn begin_attempts(&self, events: &[(Fence, &PendingEvent)]) -> Result<Vec<bool>, sqlx::Error> {
        // One transaction: each would be written to the disk by itself.
        let mut transaction = begin(&self.pool, BEGIN).await?;
        let mut recorded = Vec::with_capacity(events.len());
        for (fence, event) in events {
            let attempt = begun(event);
            let record = self
                .fenced(&self.rows.texts.record, fence, event.place, event.id)
                .bind(attempt.count)
                .bind(attempt.blocked)
                .bind(microseconds(attempt.retry_in))
                .bind(attempt.error.to_owned());
            recorded.push(!record.fetch_all(&mut *transaction).await?.is_empty());
        }
        transaction.commit().await?;
        Ok(recorded)
    }

    async fn lane(&self, lane: &Lane<'_>) -> Result<Vec<PendingEvent>, sqlx::Error> {
        // Planned anew as well. It has texts of the host's, so it is two messages: in a transaction they meet one server.
        let query = sqlx::query(self.rows.texts.lane.clone())
            .persistent(false)
            .bind(number(lane.bucket))
            .bind(lane.from)
            .bind(lane.destination.to_owned())
            .bind(lane.key.to_owned())
            .bind(i64::from(lane.most));
        self.fetch_apart(query).await?.iter().map(event).collect()
    }
}
