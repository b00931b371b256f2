//! Looks at the table of pending events.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{Row, SqlStr};

use super::{Bound, MySqlQueue, event, fence, holds, operate, place, query};
use crate::db::lease::microseconds;
use crate::db::mysql::sql::NEXT_READS_UNCOMMITTED;
use crate::db::outbox::Fence;
use crate::db::outbox::columns::json;
use crate::db::outbox::scan::{Lane, Scan, Span, begun};
use crate::db::sql::repeated;
use crate::outbox::{PendingEvent, Place};

impl MySqlQueue {
    fn numbers(&self, spans: &[Span]) -> Bound {
        // Of few lengths, so that each stays prepared: those that are too many ask for nothing.
        let length = spans.len().next_power_of_two();
        let part: &SqlStr = &self.rows.texts.numbers;
        let mut query = sqlx::query(repeated(&self.rows.texts.poll, part.as_str(), " UNION ALL ", length));
        for span in spans {
            query = query.bind(i16::from(span.bucket.number())).bind(span.after).bind(span.upto);
        }
        for _ in spans.len()..length {
            query = query.bind(-1_i16).bind(0_i64).bind(0_i64);
        }
        query
    }
}

impl Scan for MySqlQueue {
    /// A number is drawn and its row inserted in one statement, some instants apart; that statement may be long.
    const SETTLES: Duration = Duration::from_secs(1);

    async fn present(&self, spans: &[Span]) -> Result<Vec<Place>, sqlx::Error> {
        if spans.is_empty() {
            return Ok(Vec::new());
        }
        self.fetch(self.numbers(spans)).await?.iter().map(at).collect()
    }

    /// Rows that are there and not committed, by their numbers. Nobody needs to be asked who has inserted them.
    async fn writers(&self, spans: &[Span]) -> Result<Vec<String>, sqlx::Error> {
        if spans.is_empty() {
            return Ok(Vec::new());
        }
        let (dirty, clean) = (self.numbers(spans), self.numbers(spans));
        let (dirty, clean) = self
            .call(move |connection, _| {
                Box::pin(async move {
                    sqlx::raw_sql(NEXT_READS_UNCOMMITTED).execute(&mut *connection).await?;
                    let dirty = dirty.fetch_all(&mut *connection).await?;
                    Ok((dirty, clean.fetch_all(connection).await?))
                })
            })
            .await?;
        // What was committed, or deleted, between the two looks is gone the next time.
        let clean = clean.iter().map(at).collect::<Result<HashSet<Place>, sqlx::Error>>()?;
        let dirty = dirty.iter().map(at).collect::<Result<Vec<Place>, sqlx::Error>>()?;
        Ok(dirty.iter().filter(|place| !clean.contains(place)).map(|place| place.seq.to_string()).collect())
    }

    async fn newest(&self) -> Result<Option<i64>, sqlx::Error> {
        let rows = self.fetch(query(&self.rows.texts.newest)).await?;
        rows.first().map_or(Ok(None), |row| row.try_get(0))
    }

    async fn read_all(&self, places: &[Place]) -> Result<Vec<PendingEvent>, sqlx::Error> {
        let places = places.iter().map(|place| serde_json::json!([place.bucket.number(), place.seq]));
        let read = query(&self.rows.texts.read_all).bind(json(places).to_string());
        self.fetch(read).await?.iter().map(event).collect()
    }

    async fn begin_attempts(&self, events: &[(Fence, &PendingEvent)]) -> Result<Vec<bool>, sqlx::Error> {
        let events: Vec<_> = events
            .iter()
            .map(|(held, event)| {
                let attempt = begun(event);
                let recorded =
                    (attempt.count, attempt.blocked, microseconds(attempt.retry_in), attempt.error.to_owned());
                (fence(&self.rows.texts.fence, held), (event.place, event.id), recorded)
            })
            .collect();
        self.transact(move |connection, rows| {
            Box::pin(async move {
                let mut done = Vec::with_capacity(events.len());
                for (held, event, recorded) in events {
                    done.push(
                        holds(connection, held).await?
                            && operate::record(connection, &rows.texts, event, recorded).await?.is_some(),
                    );
                }
                Ok(done)
            })
        })
        .await
    }

    async fn lane(&self, lane: &Lane<'_>) -> Result<Vec<PendingEvent>, sqlx::Error> {
        let read = query(&self.rows.texts.lane)
            .bind(i16::from(lane.bucket.number()))
            .bind(lane.from)
            .bind(lane.destination.to_owned())
            .bind(lane.key.to_owned())
            .bind(lane.most);
        self.fetch(read).await?.iter().map(event).collect()
    }
}

fn at(row: &MySqlRow) -> Result<Place, sqlx::Error> {
    place(row.try_get::<i16, _>("bucket")?, row.try_get("seq")?)
}
