//! Relays' and operators' side.

#[cfg(feature = "testing")]
mod plans;
mod scan;

use std::time::Duration;

use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Postgres, Row, SqlStr};
use uuid::Uuid;

use super::{Bound, PostgresRows, event, text, texts};
use crate::db::fault::{Fault, fault, in_claim};
use crate::db::lease::microseconds;
use crate::db::migrate;
use crate::db::outbox::columns::{bucket, count, duration, error_text, id, place};
use crate::db::outbox::{Acked, Attempt, Beat, Cause, Failing, Fence, From, Member, Pause, Queue, Taken};
use crate::db::postgres::alone;
use crate::db::postgres::inspect::{Inspected, inspect};
use crate::db::postgres::purge;
use crate::db::sql::{Array, SchemaName, uncompiled, with_arrays};
use crate::error::Error;
use crate::outbox::{Bucket, DeadLetter, DeadLetters, FailingEvent, PendingEvent, Place, Stats};
use crate::purge::Batch;

/// How often a statement is tried again that the server has given up.
const TRIES: u32 = 10;

/// The tables of one schema.
#[expect(unnameable_types, reason = "part of the sealed trait `OutboxDialect`")]
#[derive(Debug)]
pub struct PostgresQueue {
    pool: PgPool,
    schema: SchemaName,
    rows: PostgresRows,
}

/// The server has given the statement up in favour of another one, and nothing was done: pools may run their statements
/// above READ COMMITTED.
fn is_conflict(error: &sqlx::Error) -> bool {
    fault::<Postgres>(error) == Fault::Conflict
}

fn number(bucket: Bucket) -> i16 {
    i16::from(bucket.number())
}

impl PostgresQueue {
    fn query<'q>(&self, text: &SqlStr) -> Bound<'q> {
        self.rows.query(text)
    }

    fn fenced<'q>(&self, text: &SqlStr, fence: &Fence, place: Place, id: Uuid) -> Bound<'q> {
        self.query(text)
            .bind(number(fence.bucket))
            .bind(fence.epoch)
            .bind(fence.owner.to_string())
            .bind(place.seq)
            .bind(id.to_string())
    }

    /// A poll in one message, planned by how long the table is now: a plan that was made for a table of one page would read
    /// all of a long one.
    fn polling(text: &SqlStr, from: &[From]) -> SqlStr {
        let buckets = Array::of_numbers(from.iter().map(|from| number(from.bucket).into()));
        let after = Array::of_numbers(from.iter().map(|from| from.after));
        with_arrays(text, &[buckets, after, Array::of_numbers(from.iter().map(|from| from.most.into()))])
    }

    /// The same for acks.
    fn deleting(text: &SqlStr, acked: &[Acked]) -> SqlStr {
        let buckets = Array::of_numbers(acked.iter().map(|acked| number(acked.place.bucket).into()));
        let numbers = Array::of_numbers(acked.iter().map(|acked| acked.place.seq));
        with_arrays(text, &[buckets, numbers, Array::of_ids(acked.iter().map(|acked| acked.id))])
    }

    fn which<'q>(&self, text: &SqlStr, which: &'q DeadLetters, most: u32) -> Bound<'q> {
        self.query(text)
            .bind(which.id.map(|id| id.to_string()))
            .bind(&which.destination)
            .bind(&which.topic)
            .bind(&which.kind)
            .bind(&which.key)
            .bind(which.older_than.map(microseconds))
            .bind(i64::from(most))
    }

    /// What a statement returns.
    async fn fetch(&self, query: Bound<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        alone::fetch(&self.pool, self.rows.persistent, query).await
    }

    /// The same in a transaction in any case: for a statement that does not stay prepared where others do.
    async fn fetch_apart(&self, query: Bound<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
        alone::fetch(&self.pool, false, query).await
    }

    /// What a statement that changes something returns.
    async fn returned<'q>(&self, statement: impl Fn() -> Bound<'q> + Send) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut tries = 0_u32;
        loop {
            match self.fetch(statement()).await {
                Err(error) if tries < TRIES && is_conflict(&error) => tries += 1,
                done => return done,
            }
        }
    }

    /// How many rows a statement has changed.
    async fn changed<'q>(&self, statement: impl Fn() -> Bound<'q> + Send) -> Result<u64, sqlx::Error> {
        let mut tries = 0_u32;
        loop {
            match alone::execute(&self.pool, self.rows.persistent, statement()).await {
                Err(error) if tries < TRIES && is_conflict(&error) => tries += 1,
                done => return done,
            }
        }
    }

    async fn counted<'q>(&self, statement: impl Fn() -> Bound<'q> + Send) -> Result<u64, sqlx::Error> {
        let rows = self.returned(statement).await?;
        Ok(count(rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?).into())
    }

    async fn roll(&self, text: &SqlStr, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        let query =
            || self.query(text).bind(member.name.clone()).bind(member.token.to_string()).bind(microseconds(lease));
        let (mut members, mut holdings) = (Vec::new(), Vec::new());
        for row in self.returned(query).await? {
            match row.try_get::<Option<String>, _>("name")? {
                Some(name) => members.push(name),
                None => holdings.push(taken(&row, member)?),
            }
        }
        members.sort_unstable();
        Ok(if members.is_empty() { Beat::Ousted } else { Beat::Member { members, holdings } })
    }
}

impl Queue for PostgresQueue {
    type Engine = Postgres;

    async fn open(pool: PgPool, schema: Option<&str>) -> Result<Self, Error> {
        let Inspected { schema, persistent, .. } = inspect(&pool, schema, "idempotency_outbox").await?;
        Ok(Self { rows: PostgresRows::of(Some(&schema), persistent), pool, schema })
    }

    fn rows(&self) -> PostgresRows {
        self.rows.clone()
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrate::postgres(&self.pool, &self.schema).await
    }

    fn error(error: sqlx::Error) -> Error {
        in_claim::<Postgres>(error)
    }

    async fn join(&self, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        self.roll(&self.rows.texts.join, member, lease).await
    }

    async fn beat(&self, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        self.roll(&self.rows.texts.beat, member, lease).await
    }

    async fn take(&self, member: &Member, most: u32) -> Result<Vec<Taken>, sqlx::Error> {
        let query = || self.query(&self.rows.texts.take).bind(member.token.to_string()).bind(i64::from(most));
        self.returned(query).await?.iter().map(|row| taken(row, member)).collect()
    }

    async fn release(&self, fences: &[Fence]) -> Result<(), sqlx::Error> {
        let query = || {
            self.query(&self.rows.texts.release)
                .bind(fences.iter().map(|fence| number(fence.bucket)).collect::<Vec<_>>())
                .bind(fences.iter().map(|fence| fence.epoch).collect::<Vec<_>>())
                .bind(fences.iter().map(|fence| fence.owner.to_string()).collect::<Vec<_>>())
        };
        self.changed(query).await.map(drop)
    }

    async fn leave(&self, member: &Member) -> Result<(), sqlx::Error> {
        let query = || self.query(&self.rows.texts.leave).bind(member.name.clone()).bind(member.token.to_string());
        self.changed(query).await.map(drop)
    }

    async fn poll(&self, from: &[From]) -> Result<Vec<PendingEvent>, sqlx::Error> {
        let poll = Self::polling(&self.rows.texts.poll, from);
        sqlx::raw_sql(uncompiled(&poll)).fetch_all(&self.pool).await?.iter().map(event).collect()
    }

    async fn read(&self, place: Place) -> Result<Option<PendingEvent>, sqlx::Error> {
        let query = self.query(&self.rows.texts.read).bind(number(place.bucket)).bind(place.seq);
        self.fetch(query).await?.first().map(event).transpose()
    }

    async fn delete(&self, acked: &[Acked]) -> Result<(), sqlx::Error> {
        let mut tries = 0_u32;
        loop {
            let delete = Self::deleting(&self.rows.texts.delete, acked);
            match sqlx::raw_sql(uncompiled(&delete)).execute(&self.pool).await {
                Err(error) if tries < TRIES && is_conflict(&error) => tries += 1,
                done => return done.map(drop),
            }
        }
    }

    async fn failing(&self, buckets: &[Bucket]) -> Result<Vec<Failing>, sqlx::Error> {
        let buckets: Vec<i16> = buckets.iter().map(|bucket| number(*bucket)).collect();
        self.fetch(self.query(&self.rows.texts.failing).bind(buckets)).await?.iter().map(failing).collect()
    }

    async fn record(&self, fence: &Fence, attempt: &Attempt<'_>) -> Result<Option<u32>, sqlx::Error> {
        let query = || {
            self.fenced(&self.rows.texts.record, fence, attempt.event.place, attempt.event.id)
                .bind(attempt.count)
                .bind(attempt.blocked)
                .bind(microseconds(attempt.retry_in))
                .bind(error_text(attempt.error))
        };
        let rows = self.returned(query).await?;
        rows.first().map(|row| Ok(count(row.try_get::<i32, _>(0)?.into()))).transpose()
    }

    async fn park(&self, fence: &Fence, place: Place, id: Uuid, cause: &Cause<'_>) -> Result<bool, sqlx::Error> {
        let query = || {
            self.fenced(&self.rows.texts.park, fence, place, id)
                .bind(i32::try_from(cause.attempts).unwrap_or(i32::MAX))
                .bind(error_text(cause.error))
        };
        Ok(self.changed(query).await? == 1)
    }

    async fn promote(&self, most: u32) -> Result<u64, sqlx::Error> {
        self.changed(|| self.query(&self.rows.texts.promote).bind(i64::from(most))).await
    }

    async fn paused(&self) -> Result<Vec<Pause>, sqlx::Error> {
        let rows = self.fetch(self.query(&self.rows.texts.paused)).await?;
        let pause = |row: &PgRow| {
            let key = row.try_get::<bool, _>("has_key")?.then(|| text(row, "aggregateid")).transpose()?;
            Ok(Pause { destination: text(row, "destination")?, key })
        };
        rows.iter().map(pause).collect()
    }

    async fn set_paused(&self, pause: &Pause, paused: bool) -> Result<(), sqlx::Error> {
        let text = if paused { &self.rows.texts.pause } else { &self.rows.texts.resume };
        let query = || {
            self.query(text)
                .bind(pause.destination.clone())
                .bind(pause.key.is_some())
                .bind(pause.key.clone().unwrap_or_default())
        };
        self.changed(query).await.map(drop)
    }

    async fn stats(&self) -> Result<Stats, sqlx::Error> {
        let most = i64::try_from(Stats::MOST).unwrap_or(i64::MAX);
        let rows = self.fetch(self.query(&self.rows.texts.stats).bind(most)).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let counted = |column: &str| Ok::<u64, sqlx::Error>(count(row.try_get(column)?).into());
        Ok(Stats {
            pending: counted("pending")?,
            oldest_age: row.try_get::<Option<i64>, _>("oldest_age")?.map(duration),
            failing: counted("failing")?,
            blocked: counted("blocked")?,
            deferred: counted("deferred")?,
            dead: counted("dead")?,
        })
    }

    async fn list_failing(&self, most: u32) -> Result<Vec<FailingEvent>, sqlx::Error> {
        let rows = self.fetch(self.query(&self.rows.texts.list_failing).bind(i64::from(most))).await?;
        let failing = |row: &PgRow| {
            Ok(FailingEvent {
                pending: event(row)?,
                attempts: count(row.try_get::<i32, _>("attempts")?.into()),
                blocked: row.try_get("blocked")?,
                failing_for: duration(row.try_get("failing_for")?),
                error: row.try_get("error")?,
            })
        };
        rows.iter().map(failing).collect()
    }

    async fn redrive_failing(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        let query = || self.query(&self.rows.texts.redrive_failing).bind(id.to_string());
        Ok(self.changed(query).await? > 0)
    }

    async fn discard_failing(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        let query = || self.query(&self.rows.texts.discard_failing).bind(id.to_string());
        Ok(self.changed(query).await? > 0)
    }

    async fn dead(&self, which: &DeadLetters, most: u32) -> Result<Vec<DeadLetter>, sqlx::Error> {
        let rows = self.fetch(self.which(&self.rows.texts.dead, which, most)).await?;
        let letter = |row: &PgRow| {
            Ok(DeadLetter {
                event: event(row)?,
                attempts: count(row.try_get::<i32, _>("attempts")?.into()),
                dead_for: duration(row.try_get("dead_for")?),
                error: row.try_get("error")?,
            })
        };
        rows.iter().map(letter).collect()
    }

    async fn count_dead(&self, which: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        self.counted(|| self.which(&self.rows.texts.count_dead, which, most)).await
    }

    async fn redrive_dead(&self, which: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        self.counted(|| self.which(&self.rows.texts.redrive_dead, which, most)).await
    }

    async fn discard_dead(&self, which: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        self.counted(|| self.which(&self.rows.texts.discard_dead, which, most)).await
    }

    #[cfg(feature = "testing")]
    async fn plans(&self) -> Result<[Vec<String>; 2], sqlx::Error> {
        plans::plans(self).await
    }

    async fn purge(&self, older_than: Duration, most: u32) -> Result<u64, sqlx::Error> {
        for text in [&self.rows.texts.forget_members, &self.rows.texts.forget_failures] {
            self.changed(|| self.query(text).bind(i64::from(most))).await?;
        }
        self.discard_dead(&DeadLetters::all().older_than(older_than), most).await
    }

    async fn purge_batch(&self, older_than: Duration, most: u32) -> Result<Batch, sqlx::Error> {
        let alone = purge::begin_alone(&self.pool, &self.schema, self.rows.persistent).await?;
        let Some(mut transaction) = alone else { return Ok(Batch::Busy) };
        let dead = self.query(&self.rows.texts.purge_dead).persistent(false);
        let dead = dead.bind(i64::from(most)).bind(microseconds(older_than));
        let rows = dead.fetch_all(&mut *transaction).await?;
        let overdue: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        let mut done = Batch::of(overdue);
        // When the dead letters are done, so that catching up does not look for the rest each time.
        let left = i64::from(done.room_in(most));
        if left > 0 {
            self.query(&self.rows.texts.forget_members).bind(left).execute(&mut *transaction).await?;
            let forget = self.query(&self.rows.texts.forget_failures).persistent(false).bind(left);
            done = done.and(Batch::swept(forget.execute(&mut *transaction).await?.rows_affected()));
        }
        transaction.commit().await?;
        Ok(done)
    }
}

fn taken(row: &PgRow, member: &Member) -> Result<Taken, sqlx::Error> {
    let fence = Fence { bucket: bucket(row.try_get("bucket")?)?, epoch: row.try_get("epoch")?, owner: member.token };
    Ok(Taken { fence, vanished: row.try_get("vanished")? })
}

fn failing(row: &PgRow) -> Result<Failing, sqlx::Error> {
    Ok(Failing {
        place: place(row.try_get("bucket")?, row.try_get("seq")?)?,
        id: id(&text(row, "id")?)?,
        destination: text(row, "destination")?,
        key: texts(row, "aggregateid")?,
        attempts: count(row.try_get::<i32, _>("attempts")?.into()),
        blocked: row.try_get("blocked")?,
        retry_in: duration(row.try_get("retry_in")?),
        redrives: count(row.try_get::<i32, _>("redrives")?.into()),
    })
}
