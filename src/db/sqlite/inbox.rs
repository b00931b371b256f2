//! The inbox on SQLite.
//!
//! There is one writer, so whoever has the write lock sees every mark that there is, and rivals wait in BEGIN. A message
//! has a transaction from its beginning on; those of one inbox stand in a queue for it, so that they take no connection
//! before it is their turn.

mod sql;

use std::sync::Arc;
use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqlitePoolOptions, SqliteTransactionManager};
use sqlx::{Row, Sqlite, SqliteConnection, SqlitePool, Transaction};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::inspect::inspect;
use super::sql::RELEASE;
use super::wait::{acquire, patiently};
use super::{code_of, names_nothing, own_error, stats};
use crate::db::begin::{begin_in_turn, in_background, mend, roll_back, undisturbed};
use crate::db::fault::{Fault, before_commit, fault};
use crate::db::inbox::{
    Identity, InboxDialect, Lent, Met, New, Own, Rows, Settings, Stood, Uncommitted, Whose, as_json,
};
use crate::db::lease::microseconds;
use crate::db::migrate;
use crate::db::slot::depth;
use crate::error::{Error, ErrorKind};
use crate::purge::Batch;
use crate::store::Count;

/// How long a message waits to write: in the queue, for a connection and for other processes, all together.
const PATIENCE: Duration = Duration::from_secs(5);

/// SQLITE_BUSY_SNAPSHOT: somebody has written since this transaction first read, and it can write no more.
const STALE: i32 = 517;

impl InboxDialect for Sqlite {
    type Inbox = SqliteInbox;
}

/// The tables of one file.
#[expect(unnameable_types, reason = "part of the sealed trait `InboxDialect`")]
#[derive(Debug)]
pub struct SqliteInbox {
    /// The host's: handlers' transactions.
    pool: SqlitePool,
    /// Asks whether the write lock is free.
    desk: SqlitePool,
    /// The busy timeout of the host's connections, in milliseconds.
    own_wait: u32,
    queue: Arc<Semaphore>,
}

/// The right to write, until the transaction has ended.
#[expect(unnameable_types, reason = "part of the sealed trait `InboxDialect`")]
#[derive(Clone, Debug)]
pub struct Turn {
    _permit: Arc<OwnedSemaphorePermit>,
    until: Instant,
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

fn of<'q>(text: &'static str, identity: &'q Identity) -> Bound<'q> {
    identity.parts().into_iter().fold(sqlx::query(text), Query::bind)
}

fn owned<'q>(text: &'static str, own: &'q Own) -> Bound<'q> {
    of(text, &own.identity).bind(&own.token[..])
}

async fn changed(query: Bound<'_>, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

impl SqliteInbox {
    async fn turn(&self) -> Result<Turn, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        match timeout_at(until, Arc::clone(&self.queue).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn { _permit: Arc::new(permit), until }),
            Ok(Err(_)) => Err(sqlx::Error::PoolClosed),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    async fn write(&self, query: impl Fn() -> Bound<'static>) -> Result<u64, sqlx::Error> {
        let turn = self.turn().await?;
        let mut connection = acquire(&self.pool, turn.until).await?;
        let done = patiently!(turn.until, query().execute(&mut *connection).await)?;
        Ok(done.rows_affected())
    }

    /// Whether nobody has the write lock, so surely not the caller.
    async fn nobody_writes(&self) -> Result<bool, sqlx::Error> {
        let now = Instant::now();
        let connection = acquire(&self.desk, now + PATIENCE).await?;
        match begin_in_turn(connection, 0, now).await {
            Ok(transaction) => {
                roll_back(transaction).await?;
                Ok(true)
            }
            Err(error) if fault::<Sqlite>(&error) == Fault::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn try_accept(connection: &mut SqliteConnection, marks: &[New]) -> Result<Vec<Met>, sqlx::Error> {
        let Some(New { own, .. }) = marks.first() else { return Ok(Vec::new()) };
        let consumer = own.identity.consumer.as_bytes();
        let asked = as_json(marks);
        let accept = sqlx::query(sql::ACCEPT).bind(consumer).bind(microseconds(own.retention)).bind(&asked);
        let accepted = accept.fetch_all(&mut *connection).await?;
        let accepted = accepted.iter().map(|row| row.try_get::<Vec<u8>, _>(0)).collect::<Result<Vec<_>, _>>()?;
        let mut met: Vec<Met> = marks
            .iter()
            .map(
                |new| {
                    if accepted.iter().any(|token| *token == new.own.token) { Met::Nothing(None) } else { Met::Rival }
                },
            )
            .collect();
        if accepted.len() < marks.len() {
            let rows = sqlx::query(sql::LOOK).bind(consumer).bind(&asked).fetch_all(connection).await?;
            for row in rows {
                let number = usize::try_from(row.try_get::<i64, _>("n")?).unwrap_or(usize::MAX);
                if let Some(place) = met.get_mut(number)
                    && *place == Met::Rival
                {
                    *place = Met::Mark(row.try_get("digest")?);
                }
            }
        }
        Ok(met)
    }
}

/// Whether it is the transaction that was begun, with no savepoint of sqlx's left open (H29).
async fn is_intact(transaction: &mut Transaction<'static, Sqlite>) -> Result<bool, sqlx::Error> {
    match sqlx::raw_sql(RELEASE).execute(&mut **transaction).await {
        // Answered, so the depth that the connection's thread counts is current.
        Ok(_) => Ok(depth::<Sqlite>(transaction) == 1),
        Err(error) if names_nothing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn commit(lent: &mut Lent<SqliteInbox>, own: &Own) -> Result<(), Error> {
    let transaction = &mut lent.transaction;
    if !is_intact(transaction).await.map_err(before_commit::<Sqlite>)? {
        return Err(ErrorKind::TransactionEnded.into());
    }
    let confirm = owned(sql::CONFIRM, own).bind(microseconds(own.retention));
    if !changed(confirm, transaction).await.map_err(before_commit::<Sqlite>)? {
        return Err(ErrorKind::TransactionEnded.into());
    }
    SqliteTransactionManager::commit(transaction).await.map_err(|error| match fault::<Sqlite>(&error) {
        // An error of the disk in COMMIT leaves the outcome open.
        Fault::Lost => Error::with_source(ErrorKind::NotRecorded, error),
        _ => before_commit::<Sqlite>(error),
    })
}

async fn undo(mut lent: Lent<SqliteInbox>, failed: Option<Own>) -> Result<(), sqlx::Error> {
    mend(&mut lent.transaction).await?;
    let Some(own) = failed else { return Ok(()) };
    // The same connection, which is in no transaction now.
    let until = Instant::now() + PATIENCE;
    let count = || of(sql::COUNT_FAILURE, &own.identity).bind(microseconds(own.retention));
    patiently!(until, count().execute(&mut *lent.transaction).await).map(drop)
}

impl Rows for SqliteInbox {
    type Engine = Sqlite;
    type Session = Turn;

    async fn open(pool: SqlitePool, settings: Settings) -> Result<Self, Error> {
        if settings.schema.is_some() {
            return Err(Error::with_source(ErrorKind::Setup, "SQLite has no schemas"));
        }
        let found = inspect(&pool).await?;
        let own = SqliteConnectOptions::clone(&pool.connect_options()).busy_timeout(Duration::ZERO);
        let desk = SqlitePoolOptions::new().test_before_acquire(false).max_connections(1).connect_lazy_with(own);
        Ok(Self { pool, desk, own_wait: found.busy_timeout, queue: Arc::new(Semaphore::new(1)) })
    }

    async fn migrate(&self) -> Result<(), Error> {
        let lent = self.lend().await?;
        undisturbed(async move {
            let Lent { mut transaction, session } = lent;
            migrate::sqlite(&mut transaction).await?;
            let done = transaction.commit().await;
            drop(session);
            done
        })
        .await
        .map_err(own_error)
    }

    fn error(error: sqlx::Error) -> Error {
        own_error(error)
    }

    async fn lend(&self) -> Result<Lent<Self>, Error> {
        let session = self.turn().await.map_err(own_error)?;
        let connection = acquire(&self.pool, session.until).await.map_err(own_error)?;
        let transaction = begin_in_turn(connection, self.own_wait, session.until).await.map_err(own_error)?;
        Ok(Lent { transaction, session })
    }

    async fn accept(&self, connection: &mut SqliteConnection, marks: &[New], whose: Whose) -> Result<Vec<Met>, Error> {
        if whose == Whose::Callers {
            if self.nobody_writes().await.map_err(own_error)? {
                return Err(ErrorKind::NotAWriter.into());
            }
            // Somebody writes: the caller, or somebody else. A transaction that has read is not made to wait for the write
            // lock, but refused it.
            let consumer = marks.first().map_or(&[][..], |new| new.own.identity.consumer.as_bytes());
            let look = sqlx::query(sql::LOOK).bind(consumer).bind(as_json(marks));
            look.fetch_all(&mut *connection).await.map_err(own_error)?;
        }
        Self::try_accept(connection, marks).await.map_err(|error| match code_of(&error) {
            Some(STALE) => Error::with_source(ErrorKind::TransactionLost, error),
            Some(code) if code & 0xff == 5 && whose == Whose::Callers => {
                Error::with_source(ErrorKind::NotAWriter, error)
            }
            _ if fault::<Sqlite>(&error) == Fault::Aborted => Error::with_source(ErrorKind::TransactionLost, error),
            _ => own_error(error),
        })
    }

    async fn peek(&self, identity: &Identity) -> Result<Option<Option<Vec<u8>>>, sqlx::Error> {
        let mut connection = acquire(&self.pool, Instant::now() + PATIENCE).await?;
        let row = of(sql::PEEK, identity).fetch_optional(&mut *connection).await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    async fn retract(&self, connection: &mut SqliteConnection, own: &Own) -> Result<(), sqlx::Error> {
        changed(owned(sql::RETRACT, own), connection).await.map(drop)
    }

    async fn confirm(&self, connection: &mut SqliteConnection, own: &Own) -> Result<bool, sqlx::Error> {
        changed(owned(sql::CONFIRM, own).bind(microseconds(own.retention)), connection).await
    }

    async fn failures(&self, connection: &mut SqliteConnection, identity: &Identity) -> Result<u64, sqlx::Error> {
        let row = of(sql::FAILURES, identity).fetch_optional(connection).await?;
        let failures = row.map(|row| row.try_get::<i64, _>(0)).transpose()?;
        Ok(failures.unwrap_or_default().unsigned_abs())
    }

    /// To its end, since a COMMIT whose answer nobody reads leaves sqlx's count of transactions wrong.
    async fn commit(&self, mut lent: Lent<Self>, own: &Own) -> Result<(), Uncommitted<Self>> {
        let own = own.clone();
        undisturbed(async move {
            match commit(&mut lent, &own).await {
                Ok(()) => Ok(()),
                Err(error) => Err(Uncommitted::open(error, lent)),
            }
        })
        .await
    }

    async fn undo(&self, lent: Lent<Self>, failed: Option<&Own>) -> Result<(), sqlx::Error> {
        undisturbed(undo(lent, failed.cloned())).await
    }

    fn discard(&self, lent: Lent<Self>) {
        in_background(async move {
            // A connection that cannot be mended is of no use to anybody; its pool finds out when it is returned.
            let _ = undo(lent, None).await;
        });
    }

    async fn count_failure(&self, identity: &Identity, retention: Duration) -> Result<(), sqlx::Error> {
        let count = || bytes(sql::COUNT_FAILURE, identity).bind(microseconds(retention));
        self.write(count).await.map(drop)
    }

    async fn forget_failures(&self, identity: &Identity) -> Result<(), sqlx::Error> {
        self.write(|| bytes(sql::FORGET_FAILURES, identity)).await.map(drop)
    }

    async fn stats(&self, most: u64) -> Result<Stood, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        patiently!(until, stats::inbox(&mut *acquire(&self.desk, until).await?, most).await)
    }

    async fn consumer(&self, after: &[u8], most: u64) -> Result<Option<(Vec<u8>, Count)>, sqlx::Error> {
        let until = Instant::now() + PATIENCE;
        patiently!(until, stats::consumer(&mut *acquire(&self.desk, until).await?, after, most).await)
    }

    async fn purge(&self, limit: u32) -> Result<u64, sqlx::Error> {
        let marks = self.write(|| sqlx::query(sql::PURGE).bind(limit)).await?;
        Ok(marks + self.write(|| sqlx::query(sql::PURGE_FAILURES).bind(limit)).await?)
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, sqlx::Error> {
        let turn = self.turn().await?;
        let mut connection = acquire(&self.pool, turn.until).await?;
        let mut done = Batch::NOTHING;
        for text in [sql::PURGE, sql::PURGE_FAILURES] {
            let purge = || sqlx::query_scalar(text).bind(done.room_in(limit));
            let overdue: Vec<i64> = patiently!(turn.until, purge().fetch_all(&mut *connection).await)?;
            done = done.and(Batch::of(overdue));
        }
        Ok(done)
    }
}

/// With parameters of its own.
fn bytes(text: &'static str, identity: &Identity) -> Bound<'static> {
    identity.parts().into_iter().fold(sqlx::query(text), |query, part| query.bind(part.to_vec()))
}
