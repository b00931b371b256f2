//! Looks at the table of pending events.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlSafeStr};
use tokio::time::Instant;

use super::{Bound, PATIENCE, SqliteQueue, acquire, event, of, place, sql};
use crate::db::lease::microseconds;
use crate::db::outbox::Fence;
use crate::db::outbox::columns::json;
use crate::db::outbox::scan::{Lane, Scan, Span, begun};
use crate::db::sql::repeated;
use crate::db::sqlite::wait::patiently;
use crate::outbox::{PendingEvent, Place};

impl Scan for SqliteQueue {
    async fn present(&self, spans: &[Span]) -> Result<Vec<Place>, sqlx::Error> {
        if spans.is_empty() {
            return Ok(Vec::new());
        }
        let text = repeated(&sql::POLL.into_sql_str(), sql::NUMBERS, " UNION ALL ", spans.len());
        let span =
            |query: Bound<'static>, span: &Span| query.bind(span.bucket.number()).bind(span.after).bind(span.upto);
        look!(self, spans.iter().fold(sqlx::query(text.clone()), span))?.iter().map(at).collect()
    }

    /// Nobody: a number is drawn under the write lock, so rows appear in their order.
    async fn writers(&self, _spans: &[Span]) -> Result<Vec<String>, sqlx::Error> {
        Ok(Vec::new())
    }

    async fn newest(&self) -> Result<Option<i64>, sqlx::Error> {
        let rows = look!(self, sqlx::query(sql::NEWEST))?;
        rows.first().map_or(Ok(None), |row| row.try_get(0))
    }

    async fn read_all(&self, places: &[Place]) -> Result<Vec<PendingEvent>, sqlx::Error> {
        let places = json(places.iter().map(|place| serde_json::json!([place.bucket.number(), place.seq]))).to_string();
        look!(self, sqlx::query(sql::READ_ALL).bind(places.as_str()))?.iter().map(event).collect()
    }

    async fn begin_attempts(&self, events: &[(Fence, &PendingEvent)]) -> Result<Vec<bool>, sqlx::Error> {
        // One transaction: each would be written to the disk by itself.
        let mut transaction = self.writing().await?;
        let mut recorded = Vec::with_capacity(events.len());
        for (fence, event) in events {
            let attempt = begun(event);
            let record = of(sql::RECORD, event.place, event.id)
                .bind(attempt.count)
                .bind(attempt.blocked)
                .bind(microseconds(attempt.retry_in))
                .bind(attempt.error);
            let done = self.post.holds(fence) && !record.fetch_all(&mut *transaction).await?.is_empty();
            recorded.push(done);
        }
        transaction.commit().await?;
        Ok(recorded)
    }

    async fn lane(&self, lane: &Lane<'_>) -> Result<Vec<PendingEvent>, sqlx::Error> {
        let rows = look!(
            self,
            sqlx::query(sql::LANE)
                .bind(lane.bucket.number())
                .bind(lane.from)
                .bind(lane.destination)
                .bind(lane.key)
                .bind(lane.most)
        )?;
        rows.iter().map(event).collect()
    }
}

fn at(row: &SqliteRow) -> Result<Place, sqlx::Error> {
    place(row.try_get::<i16, _>("bucket")?, row.try_get("seq")?)
}
