//! Relays' and operators' side. Every call runs to its end whatever becomes of whoever asked, and what changes something
//! does so under READ COMMITTED. A SELECT outside a transaction reads what is committed at its beginning, under any level.

#[cfg(feature = "testing")]
mod plans;
mod scan;

use std::time::Duration;

use sqlx::mysql::{MySqlQueryResult, MySqlRow};
use sqlx::{MySql, MySqlConnection, MySqlPool, Row, SqlStr};
use uuid::Uuid;

use super::operate::{self, holds};
use super::sql::Texts;
use super::{MySqlRows, event, relays, text, texts};
use crate::db::fault::in_claim;
use crate::db::lease::microseconds;
use crate::db::migrate;
use crate::db::mysql::call::{Bound, Work, call, transact};
use crate::db::mysql::inspect::{Inspected, inspect};
use crate::db::mysql::lease::text as bytes_as_text;
use crate::db::mysql::purge;
use crate::db::mysql::sql::{NEXT_READS_COMMITTED, NOTHING_FOLLOWS};
use crate::db::outbox::columns::{count, duration, error_text, id, json, place, triples};
use crate::db::outbox::{Acked, Attempt, Beat, Cause, Failing, Fence, From, Member, Pause, Queue, Taken};
use crate::db::sql::{SchemaName, repeated};
use crate::error::Error;
use crate::outbox::{Bucket, DeadLetter, DeadLetters, FailingEvent, PendingEvent, Place, Stats};
use crate::purge::Batch;

/// The tables of one database.
#[expect(unnameable_types, reason = "part of the sealed trait `OutboxDialect`")]
#[derive(Debug)]
pub struct MySqlQueue {
    pool: MySqlPool,
    schema: SchemaName,
    rows: MySqlRows,
}

fn query(text: &SqlStr) -> Bound {
    sqlx::query(text.clone())
}

fn fence(text: &SqlStr, fence: &Fence) -> Bound {
    query(text).bind(fence.bucket.number()).bind(fence.epoch).bind(fence.owner.as_bytes().to_vec())
}

/// Of few lengths, so that each stays prepared: the ranges that are too many ask for nothing.
fn padded(count: usize) -> usize {
    count.next_power_of_two()
}

/// The text of a poll of so many buckets.
fn ranges(texts: &Texts, count: usize) -> SqlStr {
    repeated(&texts.poll, texts.range.as_str(), " UNION ALL ", padded(count))
}

fn polling(text: &SqlStr, from: &[From]) -> Bound {
    let mut query = query(text);
    for from in from {
        query = query.bind(i16::from(from.bucket.number())).bind(from.after).bind(from.most);
    }
    for _ in from.len()..padded(from.len()) {
        query = query.bind(-1_i16).bind(0_i64).bind(0_u32);
    }
    query
}

/// One statement that changes something.
pub(super) async fn execute(connection: &mut MySqlConnection, query: Bound) -> Result<MySqlQueryResult, sqlx::Error> {
    sqlx::raw_sql(NEXT_READS_COMMITTED).execute(&mut *connection).await?;
    let done = query.execute(&mut *connection).await;
    if done.is_err() {
        // It may not have begun: then the level would be that of whatever the session does next.
        sqlx::raw_sql(NOTHING_FOLLOWS).execute(connection).await?;
    }
    done
}

fn which(text: &SqlStr, which: &DeadLetters, most: u32) -> Bound {
    let bytes = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let id = which.id.map(|id| id.to_string());
    let age = which.older_than.map(microseconds);
    let mut query = query(text).bind(id.clone()).bind(id);
    for name in [&which.destination, &which.topic, &which.kind, &which.key] {
        query = query.bind(bytes(name)).bind(bytes(name));
    }
    query.bind(age).bind(age).bind(most)
}

impl MySqlQueue {
    async fn fetch(&self, query: Bound) -> Result<Vec<MySqlRow>, sqlx::Error> {
        call(&self.pool, move |connection| Box::pin(query.fetch_all(connection))).await
    }

    async fn change(&self, query: Bound) -> Result<MySqlQueryResult, sqlx::Error> {
        call(&self.pool, move |connection| Box::pin(execute(connection, query))).await
    }

    /// With the texts, on one connection.
    async fn call<T: Send + 'static>(
        &self,
        work: impl for<'c> FnOnce(&'c mut MySqlConnection, MySqlRows) -> Work<'c, T> + Send + 'static,
    ) -> Result<T, sqlx::Error> {
        let rows = self.rows.clone();
        call(&self.pool, move |connection| work(connection, rows)).await
    }

    /// The same in a transaction.
    async fn transact<T: Send + 'static>(
        &self,
        work: impl for<'c> FnOnce(&'c mut MySqlConnection, MySqlRows) -> Work<'c, T> + Send + 'static,
    ) -> Result<T, sqlx::Error> {
        let rows = self.rows.clone();
        transact(&self.pool, move |connection| work(connection, rows)).await
    }

    async fn roll(&self, member: &Member, lease: Duration, joins: bool) -> Result<Beat, sqlx::Error> {
        let (member, lease) = (member.clone(), microseconds(lease));
        self.call(move |connection, rows| {
            Box::pin(async move {
                if !relays::say(connection, &rows.texts, &member, lease, joins).await? {
                    return Ok(Beat::Ousted);
                }
                relays::look(connection, &rows.texts, &member).await
            })
        })
        .await
    }

    async fn take_dead(&self, letters: &DeadLetters, most: u32, back: bool) -> Result<u64, sqlx::Error> {
        let lock = which(&self.rows.texts.lock_dead, letters, most);
        self.transact(move |connection, rows| {
            Box::pin(async move { operate::take_dead(connection, &rows.texts, lock, back).await })
        })
        .await
    }
}

impl Queue for MySqlQueue {
    type Engine = MySql;

    async fn open(pool: MySqlPool, schema: Option<&str>) -> Result<Self, Error> {
        let Inspected { schema, .. } = inspect(&pool, schema.map(str::to_owned)).await?;
        Ok(Self { rows: MySqlRows::of(Some(&schema)), pool, schema })
    }

    fn rows(&self) -> MySqlRows {
        self.rows.clone()
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrate::mysql(&self.pool, &self.schema).await
    }

    fn error(error: sqlx::Error) -> Error {
        in_claim::<MySql>(error)
    }

    async fn join(&self, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        self.roll(member, lease, true).await
    }

    async fn beat(&self, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        self.roll(member, lease, false).await
    }

    async fn take(&self, member: &Member, most: u32) -> Result<Vec<Taken>, sqlx::Error> {
        let (member, most) = (member.clone(), usize::try_from(most).unwrap_or(usize::MAX));
        self.call(move |connection, rows| {
            Box::pin(async move { relays::take(connection, &rows.texts, &member, most).await })
        })
        .await
    }

    async fn release(&self, fences: &[Fence]) -> Result<(), sqlx::Error> {
        let fences = fences.to_vec();
        self.call(move |connection, rows| {
            Box::pin(async move { relays::release(connection, &rows.texts, &fences).await })
        })
        .await
    }

    async fn leave(&self, member: &Member) -> Result<(), sqlx::Error> {
        let (name, token) = (member.name.as_bytes().to_vec(), member.token.as_bytes().to_vec());
        self.transact(move |connection, rows| {
            Box::pin(async move {
                query(&rows.texts.release_all).bind(token.clone()).execute(&mut *connection).await?;
                query(&rows.texts.leave).bind(name).bind(token).execute(connection).await.map(drop)
            })
        })
        .await
    }

    async fn poll(&self, from: &[From]) -> Result<Vec<PendingEvent>, sqlx::Error> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let query = polling(&ranges(&self.rows.texts, from.len()), from);
        let events: Result<Vec<_>, _> = self.fetch(query).await?.iter().map(event).collect();
        let mut events = events?;
        events.sort_unstable_by_key(PendingEvent::place);
        Ok(events)
    }

    async fn read(&self, place: Place) -> Result<Option<PendingEvent>, sqlx::Error> {
        let read = query(&self.rows.texts.read).bind(place.bucket.number()).bind(place.seq);
        self.fetch(read).await?.first().map(event).transpose()
    }

    async fn delete(&self, acked: &[Acked]) -> Result<(), sqlx::Error> {
        let rows = triples(acked.iter().map(|acked| (acked.place, acked.id)));
        self.change(query(&self.rows.texts.delete).bind(rows)).await.map(drop)
    }

    async fn failing(&self, buckets: &[Bucket]) -> Result<Vec<Failing>, sqlx::Error> {
        let buckets = json(buckets.iter().map(|bucket| bucket.number())).to_string();
        self.fetch(query(&self.rows.texts.failing).bind(buckets)).await?.iter().map(failing).collect()
    }

    async fn record(&self, held: &Fence, attempt: &Attempt<'_>) -> Result<Option<u32>, sqlx::Error> {
        let held = fence(&self.rows.texts.fence, held);
        let event = (attempt.event.place, attempt.event.id);
        let recorded = (attempt.count, attempt.blocked, microseconds(attempt.retry_in), error_text(attempt.error));
        self.transact(move |connection, rows| {
            Box::pin(async move {
                if !holds(connection, held).await? {
                    return Ok(None);
                }
                operate::record(connection, &rows.texts, event, recorded).await
            })
        })
        .await
    }

    async fn park(&self, held: &Fence, place: Place, id: Uuid, cause: &Cause<'_>) -> Result<bool, sqlx::Error> {
        let held = fence(&self.rows.texts.fence, held);
        let cause = (cause.attempts, error_text(cause.error));
        self.transact(move |connection, rows| {
            Box::pin(async move {
                Ok(holds(connection, held).await? && operate::park(connection, &rows.texts, (place, id), cause).await?)
            })
        })
        .await
    }

    async fn promote(&self, most: u32) -> Result<u64, sqlx::Error> {
        // Nearly always there is nothing: seen without a lock.
        if self.fetch(query(&self.rows.texts.is_due).bind(1_u32)).await?.is_empty() {
            return Ok(0);
        }
        self.transact(move |connection, rows| {
            Box::pin(async move { operate::promote(connection, &rows.texts, most).await })
        })
        .await
    }

    async fn paused(&self) -> Result<Vec<Pause>, sqlx::Error> {
        let pause = |row: &MySqlRow| {
            let key =
                (row.try_get::<i16, _>("has_key")? != 0).then(|| bytes_as_text(row, "aggregateid")).transpose()?;
            Ok(Pause { destination: bytes_as_text(row, "destination")?, key })
        };
        self.fetch(query(&self.rows.texts.paused)).await?.iter().map(pause).collect()
    }

    async fn set_paused(&self, pause: &Pause, paused: bool) -> Result<(), sqlx::Error> {
        let text = if paused { &self.rows.texts.pause } else { &self.rows.texts.resume };
        let key = pause.key.as_deref();
        let query = query(text)
            .bind(pause.destination.as_bytes().to_vec())
            .bind(key.is_some())
            .bind(key.unwrap_or_default().as_bytes().to_vec());
        self.change(query).await.map(drop)
    }

    async fn stats(&self) -> Result<Stats, sqlx::Error> {
        let mut query = query(&self.rows.texts.stats);
        for _ in 0..5 {
            query = query.bind(Stats::MOST);
        }
        let rows = self.fetch(query).await?;
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
        let failing = |row: &MySqlRow| {
            Ok(FailingEvent {
                pending: event(row)?,
                attempts: count(row.try_get::<i32, _>("attempts")?.into()),
                blocked: row.try_get::<i16, _>("blocked")? != 0,
                failing_for: duration(row.try_get("failing_for")?),
                error: text(row, "error")?,
            })
        };
        self.fetch(query(&self.rows.texts.list_failing).bind(most)).await?.iter().map(failing).collect()
    }

    async fn redrive_failing(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        let redrive = query(&self.rows.texts.redrive_failing).bind(id.to_string());
        Ok(self.change(redrive).await?.rows_affected() > 0)
    }

    async fn discard_failing(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        self.transact(move |connection, rows| {
            Box::pin(async move { operate::discard_failing(connection, &rows.texts, id).await })
        })
        .await
    }

    async fn dead(&self, letters: &DeadLetters, most: u32) -> Result<Vec<DeadLetter>, sqlx::Error> {
        let letter = |row: &MySqlRow| {
            Ok(DeadLetter {
                event: event(row)?,
                attempts: count(row.try_get::<i32, _>("attempts")?.into()),
                dead_for: duration(row.try_get("dead_for")?),
                error: text(row, "error")?,
            })
        };
        self.fetch(which(&self.rows.texts.dead, letters, most)).await?.iter().map(letter).collect()
    }

    async fn count_dead(&self, letters: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        let rows = self.fetch(which(&self.rows.texts.count_dead, letters, most)).await?;
        Ok(count(rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?).into())
    }

    async fn redrive_dead(&self, letters: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        self.take_dead(letters, most, true).await
    }

    async fn discard_dead(&self, letters: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        self.take_dead(letters, most, false).await
    }

    #[cfg(feature = "testing")]
    async fn plans(&self) -> Result<[Vec<String>; 2], sqlx::Error> {
        plans::plans(self).await
    }

    async fn purge(&self, older_than: Duration, most: u32) -> Result<u64, sqlx::Error> {
        self.transact(move |connection, rows| {
            Box::pin(async move { operate::forget_left(connection, &rows.texts, most).await })
        })
        .await?;
        self.discard_dead(&DeadLetters::all().older_than(older_than), most).await
    }

    async fn purge_batch(&self, older_than: Duration, most: u32) -> Result<Batch, sqlx::Error> {
        let texts = self.rows.texts.clone();
        purge::alone(&self.pool, &self.schema, move |connection| {
            Box::pin(async move {
                let done = operate::purge_dead(&mut *connection, &texts, older_than, most).await?;
                // When the dead letters are done, so that catching up does not look for the rest each time.
                let left = done.room_in(most);
                let left = if left > 0 { operate::forget_left(connection, &texts, left).await? } else { 0 };
                Ok(done.and(Batch::swept(left)))
            })
        })
        .await
    }
}

fn failing(row: &MySqlRow) -> Result<Failing, sqlx::Error> {
    Ok(Failing {
        place: place(row.try_get("bucket")?, row.try_get("seq")?)?,
        id: id(&text(row, "id")?)?,
        destination: text(row, "destination")?,
        key: texts(row, "aggregateid")?,
        attempts: count(row.try_get::<i32, _>("attempts")?.into()),
        blocked: row.try_get::<i16, _>("blocked")? != 0,
        retry_in: duration(row.try_get("retry_in")?),
        redrives: count(row.try_get::<i32, _>("redrives")?.into()),
    })
}
