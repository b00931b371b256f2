//! Relays' and operators' side.

#[cfg(feature = "testing")]
mod plans;

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow};
use sqlx::{Row, SqlSafeStr, SqlStr, Sqlite, SqliteConnection, SqlitePool, Transaction};
use tokio::time::Instant;
use uuid::Uuid;

use super::post::Post;
use super::{Bound, SqliteRows, event, sql, text, texts};
use crate::db::begin::begin_in_turn;
use crate::db::lease::microseconds;
use crate::db::migrate;
use crate::db::outbox::columns::{count, duration, error_text, id, json, place, triples};
use crate::db::outbox::{Acked, Attempt, Beat, Cause, Failing, Fence, From, Member, Pause, Queue, Taken};
use crate::db::sql::repeated;
use crate::db::sqlite::inspect::inspect;
use crate::db::sqlite::own_error;
use crate::db::sqlite::wait::{acquire, patiently};
use crate::error::{Error, ErrorKind};
use crate::outbox::{Bucket, DeadLetter, DeadLetters, FailingEvent, PendingEvent, Place, Stats};
use crate::purge::Batch;

/// How long a statement waits for other writers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that read.
const DESK: u32 = 2;

/// The tables of one file, by connections of its own.
#[expect(unnameable_types, reason = "part of the sealed trait `OutboxDialect`")]
#[derive(Debug)]
pub struct SqliteQueue {
    desk: SqlitePool,
    /// One connection: who waits for it stands in a queue.
    books: SqlitePool,
    post: Post,
}

fn which<'q>(text: &'static str, which: &'q DeadLetters, most: u32) -> Bound<'q> {
    sqlx::query(text)
        .bind(which.id.map(|id| id.to_string()))
        .bind(&which.destination)
        .bind(&which.topic)
        .bind(&which.kind)
        .bind(&which.key)
        .bind(which.older_than.map(microseconds))
        .bind(most)
}

/// By bucket, number and id.
fn of<'q>(text: &'static str, place: Place, id: Uuid) -> Bound<'q> {
    sqlx::query(text).bind(place.bucket.number()).bind(place.seq).bind(id.to_string())
}

/// The text of a poll of so many buckets.
fn ranges(count: usize) -> SqlStr {
    repeated(&sql::POLL.into_sql_str(), sql::RANGE, " UNION ALL ", count)
}

fn polling<'q>(text: SqlStr, from: &[From]) -> Bound<'q> {
    let range = |query: Bound<'q>, from: &From| query.bind(from.bucket.number()).bind(from.after).bind(from.most);
    from.iter().fold(sqlx::query(text), range)
}

async fn changed(query: Bound<'_>, connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    Ok(query.execute(connection).await?.rows_affected())
}

/// One statement on the reading side, as often as it takes.
macro_rules! look {
    ($queue:expr, $query:expr) => {{
        let until = Instant::now() + PATIENCE;
        patiently!(until, $query.fetch_all(&mut *acquire(&$queue.desk, until).await?).await)
    }};
}

/// One statement that writes, to its last row, when it is its turn.
macro_rules! write {
    ($queue:expr, $query:expr) => {{
        let mut books = acquire(&$queue.books, Instant::now() + PATIENCE).await?;
        let until = Instant::now() + PATIENCE;
        patiently!(until, changed($query, &mut books).await)
    }};
}

mod scan;

impl SqliteQueue {
    /// A transaction, when it is its turn.
    async fn writing(&self) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
        let books = acquire(&self.books, Instant::now() + PATIENCE).await?;
        begin_in_turn(books, 0, Instant::now() + PATIENCE).await
    }

    fn take_part(&self, member: &Member, lease: Duration, joins: bool) -> Result<Beat, sqlx::Error> {
        self.post.beat(member, lease, joins).map_err(sqlx::Error::Io)
    }

    /// The ids of dead letters, as a JSON array, and how many there are.
    async fn dead_ids(
        &self,
        transaction: &mut Transaction<'static, Sqlite>,
        letters: &DeadLetters,
        most: u32,
    ) -> Result<(String, u64), sqlx::Error> {
        let rows = which(sql::DEAD_IDS, letters, most).fetch_all(&mut **transaction).await?;
        let ids: Result<Vec<String>, _> = rows.iter().map(|row| text(row, "id")).collect();
        let ids = ids?;
        let number = ids.len() as u64;
        Ok((json(ids).to_string(), number))
    }
}

impl Queue for SqliteQueue {
    type Engine = Sqlite;

    async fn open(pool: SqlitePool, schema: Option<&str>) -> Result<Self, Error> {
        if schema.is_some() {
            return Err(Error::with_source(ErrorKind::Setup, "SQLite has no schemas"));
        }
        let file = inspect(&pool).await?.file;
        let own = SqliteConnectOptions::clone(&pool.connect_options()).busy_timeout(Duration::ZERO);
        let keep = || SqlitePoolOptions::new().test_before_acquire(false).max_lifetime(None).idle_timeout(None);
        Ok(Self {
            desk: keep().max_connections(DESK).connect_lazy_with(own.clone()),
            books: keep().max_connections(1).connect_lazy_with(own),
            post: Post::beside(&file),
        })
    }

    fn rows(&self) -> SqliteRows {
        SqliteRows
    }

    async fn migrate(&self) -> Result<(), Error> {
        let mut transaction = self.writing().await.map_err(own_error)?;
        migrate::sqlite(&mut transaction).await.map_err(own_error)?;
        transaction.commit().await.map_err(own_error)
    }

    fn error(error: sqlx::Error) -> Error {
        own_error(error)
    }

    /// The post asks no table, so whether there is one is asked before.
    async fn join(&self, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        look!(self, sqlx::query(sql::NOTHING))?;
        self.take_part(member, lease, true)
    }

    async fn beat(&self, member: &Member, lease: Duration) -> Result<Beat, sqlx::Error> {
        self.take_part(member, lease, false)
    }

    async fn take(&self, member: &Member, most: u32) -> Result<Vec<Taken>, sqlx::Error> {
        Ok(self.post.take(member, most))
    }

    async fn release(&self, fences: &[Fence]) -> Result<(), sqlx::Error> {
        self.post.release(fences);
        Ok(())
    }

    async fn leave(&self, member: &Member) -> Result<(), sqlx::Error> {
        self.post.leave(member.token, true);
        Ok(())
    }

    fn vanish(&self, member: &Member) {
        self.post.leave(member.token, false);
    }

    async fn poll(&self, from: &[From]) -> Result<Vec<PendingEvent>, sqlx::Error> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let text = ranges(from.len());
        let rows = look!(self, polling(text.clone(), from))?;
        let events: Result<Vec<_>, _> = rows.iter().map(event).collect();
        let mut events = events?;
        events.sort_unstable_by_key(PendingEvent::place);
        Ok(events)
    }

    async fn read(&self, place: Place) -> Result<Option<PendingEvent>, sqlx::Error> {
        let rows = look!(self, sqlx::query(sql::READ).bind(place.bucket.number()).bind(place.seq))?;
        rows.first().map(event).transpose()
    }

    async fn delete(&self, acked: &[Acked]) -> Result<(), sqlx::Error> {
        let rows = triples(acked.iter().map(|acked| (acked.place, acked.id)));
        write!(self, sqlx::query(sql::DELETE).bind(rows.as_str()))?;
        write!(self, sqlx::query(sql::DELETE_FAILING).bind(rows.as_str())).map(drop)
    }

    async fn failing(&self, buckets: &[Bucket]) -> Result<Vec<Failing>, sqlx::Error> {
        let buckets = json(buckets.iter().map(|bucket| bucket.number())).to_string();
        look!(self, sqlx::query(sql::FAILING).bind(buckets.as_str()))?.iter().map(failing).collect()
    }

    async fn record(&self, fence: &Fence, attempt: &Attempt<'_>) -> Result<Option<u32>, sqlx::Error> {
        let mut books = acquire(&self.books, Instant::now() + PATIENCE).await?;
        if !self.post.holds(fence) {
            return Ok(None);
        }
        let error = error_text(attempt.error);
        let until = Instant::now() + PATIENCE;
        // To its last row: a statement that is left at its first one commits without saying whether it could.
        let rows = patiently!(
            until,
            of(sql::RECORD, attempt.event.place, attempt.event.id)
                .bind(attempt.count)
                .bind(attempt.blocked)
                .bind(microseconds(attempt.retry_in))
                .bind(error.as_str())
                .fetch_all(&mut *books)
                .await
        )?;
        rows.first().map(|row| Ok(count(row.try_get(0)?))).transpose()
    }

    async fn park(&self, fence: &Fence, place: Place, id: Uuid, cause: &Cause<'_>) -> Result<bool, sqlx::Error> {
        let mut transaction = self.writing().await?;
        if !self.post.holds(fence) {
            return Ok(false);
        }
        let bury = of(sql::BURY, place, id).bind(cause.attempts).bind(error_text(cause.error));
        if changed(bury, &mut transaction).await? != 1 {
            return Ok(false);
        }
        let rows = triples([(place, id)]);
        sqlx::query(sql::DELETE).bind(rows.as_str()).execute(&mut *transaction).await?;
        sqlx::query(sql::DELETE_FAILING).bind(rows.as_str()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn promote(&self, most: u32) -> Result<u64, sqlx::Error> {
        // Nearly always there is nothing: seen without the write lock.
        if look!(self, sqlx::query(sql::DUE).bind(1))?.is_empty() {
            return Ok(0);
        }
        let mut transaction = self.writing().await?;
        let due: Vec<i64> = sqlx::query_scalar(sql::DUE).bind(most).fetch_all(&mut *transaction).await?;
        let number = due.len() as u64;
        let due = json(due).to_string();
        sqlx::query(sql::PROMOTE).bind(due.as_str()).execute(&mut *transaction).await?;
        sqlx::query(sql::DELETE_DEFERRED).bind(due.as_str()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(number)
    }

    async fn paused(&self) -> Result<Vec<Pause>, sqlx::Error> {
        let pause = |row: &SqliteRow| {
            let key = row.try_get::<bool, _>("has_key")?.then(|| text(row, "aggregateid")).transpose()?;
            Ok(Pause { destination: text(row, "destination")?, key })
        };
        look!(self, sqlx::query(sql::PAUSED))?.iter().map(pause).collect()
    }

    async fn set_paused(&self, pause: &Pause, paused: bool) -> Result<(), sqlx::Error> {
        let text = if paused { sql::PAUSE } else { sql::RESUME };
        let key = pause.key.as_deref();
        write!(self, sqlx::query(text).bind(&pause.destination).bind(key.is_some()).bind(key.unwrap_or_default()))
            .map(drop)
    }

    async fn stats(&self) -> Result<Stats, sqlx::Error> {
        let most = i64::try_from(Stats::MOST).unwrap_or(i64::MAX);
        let rows = look!(self, sqlx::query(sql::STATS).bind(most))?;
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
        let failing = |row: &SqliteRow| {
            Ok(FailingEvent {
                pending: event(row)?,
                attempts: count(row.try_get("attempts")?),
                blocked: row.try_get("blocked")?,
                failing_for: duration(row.try_get("failing_for")?),
                error: row.try_get("error")?,
            })
        };
        look!(self, sqlx::query(sql::LIST_FAILING).bind(most))?.iter().map(failing).collect()
    }

    async fn redrive_failing(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        Ok(write!(self, sqlx::query(sql::REDRIVE_FAILING).bind(id.to_string()))? > 0)
    }

    async fn discard_failing(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        let mut transaction = self.writing().await?;
        let discarded = changed(sqlx::query(sql::DISCARD_FAILING).bind(id.to_string()), &mut transaction).await?;
        sqlx::query(sql::FORGET_FAILING).bind(id.to_string()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(discarded > 0)
    }

    async fn dead(&self, letters: &DeadLetters, most: u32) -> Result<Vec<DeadLetter>, sqlx::Error> {
        let letter = |row: &SqliteRow| {
            Ok(DeadLetter {
                event: event(row)?,
                attempts: count(row.try_get("attempts")?),
                dead_for: duration(row.try_get("dead_for")?),
                error: row.try_get("error")?,
            })
        };
        look!(self, which(sql::DEAD, letters, most))?.iter().map(letter).collect()
    }

    async fn count_dead(&self, letters: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        let rows = look!(self, which(sql::COUNT_DEAD, letters, most))?;
        Ok(count(rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?).into())
    }

    async fn redrive_dead(&self, letters: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        let mut transaction = self.writing().await?;
        let (ids, number) = self.dead_ids(&mut transaction, letters, most).await?;
        sqlx::query(sql::REDRIVE_DEAD).bind(ids.as_str()).execute(&mut *transaction).await?;
        sqlx::query(sql::DELETE_DEAD).bind(ids.as_str()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(number)
    }

    async fn discard_dead(&self, letters: &DeadLetters, most: u32) -> Result<u64, sqlx::Error> {
        let mut transaction = self.writing().await?;
        let (ids, number) = self.dead_ids(&mut transaction, letters, most).await?;
        sqlx::query(sql::DELETE_DEAD).bind(ids.as_str()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(number)
    }

    #[cfg(feature = "testing")]
    async fn plans(&self) -> Result<[Vec<String>; 2], sqlx::Error> {
        plans::plans(self).await
    }

    async fn purge(&self, older_than: Duration, most: u32) -> Result<u64, sqlx::Error> {
        write!(self, sqlx::query(sql::FORGET_FAILURES).bind(most))?;
        self.discard_dead(&DeadLetters::all().older_than(older_than), most).await
    }

    async fn purge_batch(&self, older_than: Duration, most: u32) -> Result<Batch, sqlx::Error> {
        let mut books = acquire(&self.books, Instant::now() + PATIENCE).await?;
        let purge = || sqlx::query_scalar(sql::PURGE_DEAD).bind(most).bind(microseconds(older_than));
        let done = patiently!(Instant::now() + PATIENCE, purge().fetch_all(&mut *books).await).map(Batch::of)?;
        // When the dead letters are done, so that catching up does not look for the rest each time. Each statement holds the
        // write lock, which is the lock of the purge here.
        let left = done.room_in(most);
        if left == 0 {
            return Ok(done);
        }
        let forget = || sqlx::query(sql::FORGET_FAILURES).bind(left);
        let swept = patiently!(Instant::now() + PATIENCE, changed(forget(), &mut books).await)?;
        Ok(done.and(Batch::swept(swept)))
    }
}

fn failing(row: &SqliteRow) -> Result<Failing, sqlx::Error> {
    Ok(Failing {
        place: place(row.try_get("bucket")?, row.try_get("seq")?)?,
        id: id(&text(row, "id")?)?,
        destination: text(row, "destination")?,
        key: texts(row, "aggregateid")?,
        attempts: count(row.try_get("attempts")?),
        blocked: row.try_get("blocked")?,
        retry_in: duration(row.try_get("retry_in")?),
        redrives: count(row.try_get("redrives")?),
    })
}
