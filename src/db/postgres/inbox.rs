//! The inbox on Postgres.
//!
//! An INSERT of a message that somebody has inserted and not committed would wait for it. So a lock is tried first, and
//! who does not get it is told *busy*. It is freed with its transaction, after that has become visible.

pub(super) mod sql;

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::postgres::{PgArguments, PgRow, PgTransactionManager};
use sqlx::query::Query;
use sqlx::{PgConnection, PgPool, Postgres, Row, SqlStr};
use sqlx_core::transaction::TransactionManager;

use super::alone;
use super::inspect::{Inspected, inspect};
use super::sql::{BEGIN, BEGIN_REPEATABLE_READ, BEGIN_SERIALIZABLE};
use super::{purge, stats};
use crate::db::begin::begin;
use crate::db::fault::{Fault, before_commit, fault, in_claim};
use crate::db::inbox::{Identity, InboxDialect, Lent, Met, New, Own, Rows, Settings, Stood, Uncommitted, Whose};
use crate::db::lease::microseconds;
use crate::db::migrate;
use crate::db::slot::{discard, unwind};
use crate::db::sql::{SchemaName, expand};
use crate::error::{Error, ErrorKind};
use crate::purge::Batch;
use crate::store::{Count, Isolation};
use sql::Texts;

impl InboxDialect for Postgres {
    type Inbox = PostgresInbox;
}

/// The tables of one schema.
#[expect(unnameable_types, reason = "part of the sealed trait `InboxDialect`")]
#[derive(Debug)]
pub struct PostgresInbox {
    pool: PgPool,
    schema: SchemaName,
    texts: Texts,
    begin: &'static str,
    /// Whether a transaction that is begun here keeps one snapshot.
    strict: bool,
    /// In milliseconds.
    idle: Option<String>,
    /// Off where the pool keeps no statement cache: named statements would pile up on the server (S10).
    persistent: bool,
    /// Whether a mark is looked for outside of a transaction: not under SERIALIZABLE, where that costs a predicate lock and
    /// would be a reason for others to fail, and not where it would cost a transaction of its own (see [`alone`]).
    peeks: bool,
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

/// How often a message is asked for that was committed after the snapshot of the statement before.
const ASKED: usize = 2;

/// What the statement says of one message.
enum Told {
    Met(Met),
    /// Committed a moment ago: ask again.
    Unseen,
}

impl PostgresInbox {
    fn query<'q>(&self, text: &SqlStr) -> Bound<'q> {
        sqlx::query(text.clone()).persistent(self.persistent)
    }

    fn of<'q>(&self, text: &SqlStr, identity: &'q Identity) -> Bound<'q> {
        identity.parts().into_iter().fold(self.query(text), Query::bind)
    }

    fn owned<'q>(&self, text: &SqlStr, own: &'q Own) -> Bound<'q> {
        self.of(text, &own.identity).bind(&own.token[..])
    }

    /// What each message has met. `None` where the transaction keeps one snapshot and the texts are not for that.
    async fn ask(
        &self,
        connection: &mut PgConnection,
        marks: &[New],
        strict: bool,
        ours: bool,
    ) -> Result<Option<Vec<Told>>, sqlx::Error> {
        let [New { own, digest }] = marks else { return self.ask_all(connection, marks, strict, ours).await };
        let text = if strict { &self.texts.accept_strict } else { &self.texts.accept };
        let query = self
            .of(text, &own.identity)
            .bind(lock(&self.schema, &own.identity))
            .bind(&own.token[..])
            .bind(digest.as_ref().map(|digest| &digest.as_bytes()[..]))
            .bind(microseconds(own.retention))
            .bind(self.idle.as_deref())
            .bind(ours);
        let row = query.fetch_one(connection).await?;
        if row.try_get("strict")? {
            return Ok(None);
        }
        Ok(Some(vec![told(&row)?]))
    }

    async fn ask_all(
        &self,
        connection: &mut PgConnection,
        marks: &[New],
        strict: bool,
        ours: bool,
    ) -> Result<Option<Vec<Told>>, sqlx::Error> {
        let text = if strict { &self.texts.accept_all_strict } else { &self.texts.accept_all };
        let Some(New { own: first, .. }) = marks.first() else { return Ok(Some(Vec::new())) };
        let column = |part: usize| marks.iter().map(|new| new.own.identity.parts()[part]).collect::<Vec<_>>();
        let digests = marks.iter().map(|new| new.digest.map(|digest| digest.as_bytes().to_vec()));
        let query = self
            .query(text)
            .bind(first.identity.consumer.as_bytes())
            .bind(column(1))
            .bind(column(2))
            .bind(marks.iter().map(|new| lock(&self.schema, &new.own.identity)).collect::<Vec<_>>())
            .bind(marks.iter().map(|new| &new.own.token[..]).collect::<Vec<_>>())
            .bind(digests.collect::<Vec<_>>())
            .bind(microseconds(first.retention))
            .bind(self.idle.as_deref())
            .bind(ours);
        let rows = query.fetch_all(connection).await?;
        if rows.len() != marks.len() {
            return Ok(None);
        }
        rows.iter().map(told).collect::<Result<_, _>>().map(Some)
    }

    /// In a caller's transaction with one snapshot: what is committed after it is an error, which must not end the
    /// transaction.
    async fn ask_in_savepoint(
        &self,
        connection: &mut PgConnection,
        marks: &[New],
    ) -> Result<Option<Vec<Told>>, sqlx::Error> {
        run(connection, sql::SAVEPOINT).await?;
        match self.ask(connection, marks, true, false).await {
            Ok(told) => {
                run(connection, sql::RELEASE).await?;
                Ok(told)
            }
            Err(error) if fault::<Postgres>(&error) == Fault::Conflict => {
                run(connection, sql::UNDO).await?;
                Ok(Some(marks.iter().map(|_| Told::Met(Met::Rival)).collect()))
            }
            Err(error) => Err(error),
        }
    }

    /// By the row's place: under SERIALIZABLE a search of the index would be a reason for others to fail.
    async fn confirm_at_its_place(&self, connection: &mut PgConnection, own: &Own) -> Result<bool, sqlx::Error> {
        let query = self.owned(&self.texts.confirm_at, own).bind(microseconds(own.retention)).bind(&own.place);
        Ok(query.execute(connection).await?.rows_affected() == 1)
    }

    async fn try_accept(
        &self,
        connection: &mut PgConnection,
        marks: &[New],
        whose: Whose,
    ) -> Result<Vec<Met>, sqlx::Error> {
        let ours = whose == Whose::Own;
        let mut met = vec![Met::Rival; marks.len()];
        let mut left: Vec<usize> = (0..marks.len()).collect();
        for _ in 0..ASKED {
            let asked: Vec<New> = left.iter().filter_map(|number| marks.get(*number).cloned()).collect();
            let told = match self.ask(connection, &asked, ours && self.strict, ours).await? {
                Some(told) => Some(told),
                None => self.ask_in_savepoint(connection, &asked).await?,
            };
            let mut unseen = Vec::new();
            for (number, told) in left.into_iter().zip(told.into_iter().flatten()) {
                match told {
                    Told::Met(what) => met[number] = what,
                    Told::Unseen => unseen.push(number),
                }
            }
            left = unseen;
            if left.is_empty() {
                break;
            }
        }
        Ok(met)
    }
}

fn told(row: &PgRow) -> Result<Told, sqlx::Error> {
    if let Some(place) = row.try_get("accepted")? {
        return Ok(Told::Met(Met::Nothing(Some(place))));
    }
    if row.try_get("seen")? {
        return Ok(Told::Met(Met::Mark(row.try_get("digest")?)));
    }
    Ok(match row.try_get::<Option<bool>, _>("got")? {
        Some(true) => Told::Unseen,
        Some(false) | None => Told::Met(Met::Rival),
    })
}

async fn run(connection: &mut PgConnection, text: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(text).execute(connection).await.map(drop)
}

/// The lock of a message. Its encoding is frozen with the first schema (S30): processes of different versions must meet
/// at the same lock.
fn lock(schema: &SchemaName, identity: &Identity) -> i64 {
    let mut hash = Sha256::new();
    hash.update(b"idempotency/postgres-inbox/1\0");
    for part in [&[schema.as_str().as_bytes()][..], &identity.parts()].concat() {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..]: [u8; 32] = hash.finalize().into();
    i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
}

impl Rows for PostgresInbox {
    type Engine = Postgres;
    type Session = ();

    async fn open(pool: PgPool, settings: Settings) -> Result<Self, Error> {
        let Inspected { schema, reads_committed, persistent } =
            inspect(&pool, settings.schema.as_deref(), "idempotency_inbox").await?;
        let isolation = settings.isolation.unwrap_or_default();
        Ok(Self {
            texts: Texts::new(|template| expand(template, Some(&schema))),
            begin: match isolation {
                Isolation::ReadCommitted => BEGIN,
                Isolation::RepeatableRead => BEGIN_REPEATABLE_READ,
                Isolation::Serializable => BEGIN_SERIALIZABLE,
            },
            strict: isolation != Isolation::ReadCommitted,
            idle: settings.idle.map(|idle| idle.as_millis().clamp(1, i32::MAX as u128).to_string()),
            pool,
            schema,
            persistent,
            peeks: persistent && reads_committed,
        })
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrate::postgres(&self.pool, &self.schema).await
    }

    fn error(error: sqlx::Error) -> Error {
        in_claim::<Postgres>(error)
    }

    async fn lend(&self) -> Result<Lent<Self>, Error> {
        let transaction = begin(&self.pool, self.begin).await.map_err(in_claim::<Postgres>)?;
        Ok(Lent { transaction, session: () })
    }

    async fn accept(&self, connection: &mut PgConnection, marks: &[New], whose: Whose) -> Result<Vec<Met>, Error> {
        match self.try_accept(connection, marks, whose).await {
            Ok(met) => Ok(met),
            // One of ours has nothing in it yet: it ends, and another one sees what was committed.
            Err(error) if whose == Whose::Own && fault::<Postgres>(&error) == Fault::Conflict => {
                Ok(vec![Met::Rival; marks.len()])
            }
            Err(error) => Err(match fault::<Postgres>(&error) {
                Fault::Aborted => Error::with_source(ErrorKind::TransactionAborted, error),
                Fault::Lost | Fault::Conflict if whose != Whose::Own => {
                    Error::with_source(ErrorKind::TransactionLost, error)
                }
                _ => in_claim::<Postgres>(error),
            }),
        }
    }

    async fn peek(&self, identity: &Identity) -> Result<Option<Option<Vec<u8>>>, sqlx::Error> {
        if !self.peeks {
            return Ok(None);
        }
        let row = self.of(&self.texts.peek, identity).fetch_optional(&self.pool).await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    async fn retract(&self, connection: &mut PgConnection, own: &Own) -> Result<(), sqlx::Error> {
        self.owned(&self.texts.retract, own).execute(connection).await.map(drop)
    }

    async fn confirm(&self, connection: &mut PgConnection, own: &Own) -> Result<bool, sqlx::Error> {
        let query = self.owned(&self.texts.confirm, own).bind(microseconds(own.retention));
        Ok(query.execute(connection).await?.rows_affected() == 1)
    }

    async fn failures(&self, connection: &mut PgConnection, identity: &Identity) -> Result<u64, sqlx::Error> {
        let row = self.of(&self.texts.failures, identity).fetch_optional(connection).await?;
        let failures = row.map(|row| row.try_get::<i64, _>(0)).transpose()?;
        Ok(failures.unwrap_or_default().unsigned_abs())
    }

    async fn commit(&self, mut lent: Lent<Self>, own: &Own) -> Result<(), Uncommitted<Self>> {
        match self.confirm_at_its_place(&mut lent.transaction, own).await {
            Ok(true) => {}
            Ok(false) => return Err(Uncommitted::open(ErrorKind::TransactionEnded.into(), lent)),
            Err(error) => return Err(Uncommitted::open(before_commit::<Postgres>(error), lent)),
        }
        // Not by sqlx's own `commit`, which gives the transaction up at an error.
        match PgTransactionManager::commit(&mut lent.transaction).await {
            Ok(()) => Ok(()),
            Err(error) if fault::<Postgres>(&error) == Fault::Lost => {
                Err(Uncommitted::lost(Error::with_source(ErrorKind::NotRecorded, error)))
            }
            Err(error) => Err(Uncommitted::open(before_commit::<Postgres>(error), lent)),
        }
    }

    async fn undo(&self, mut lent: Lent<Self>, failed: Option<&Own>) -> Result<(), sqlx::Error> {
        unwind(&mut lent.transaction);
        PgTransactionManager::rollback(&mut lent.transaction).await?;
        let Some(own) = failed else { return Ok(()) };
        if self.persistent {
            // The same connection, which is in no transaction now.
            let query = self.of(&self.texts.count_failure, &own.identity).bind(microseconds(own.retention));
            return query.execute(&mut *lent.transaction).await.map(drop);
        }
        // A transaction of its own takes a connection of the pool: this one goes back first.
        drop(lent);
        self.count_failure(&own.identity, own.retention).await
    }

    fn discard(&self, lent: Lent<Self>) {
        discard(lent.transaction);
    }

    async fn count_failure(&self, identity: &Identity, retention: Duration) -> Result<(), sqlx::Error> {
        let query = self.of(&self.texts.count_failure, identity).bind(microseconds(retention));
        alone::execute(&self.pool, self.persistent, query).await.map(drop)
    }

    async fn forget_failures(&self, identity: &Identity) -> Result<(), sqlx::Error> {
        let query = self.of(&self.texts.forget_failures, identity);
        alone::execute(&self.pool, self.persistent, query).await.map(drop)
    }

    async fn stats(&self, most: u64) -> Result<Stood, sqlx::Error> {
        stats::inbox(&self.pool, &self.schema, most).await
    }

    async fn consumer(&self, after: &[u8], most: u64) -> Result<Option<(Vec<u8>, Count)>, sqlx::Error> {
        stats::consumer(&self.pool, &self.schema, after, most).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, sqlx::Error> {
        let mut purged = 0;
        for text in [&self.texts.purge, &self.texts.purge_failures] {
            // Planned anew: a plan for any limit reads the whole table.
            let query = self.query(text).persistent(false).bind(i64::from(limit));
            purged += alone::execute(&self.pool, false, query).await?;
        }
        Ok(purged)
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, sqlx::Error> {
        let texts = [&self.texts.purge, &self.texts.purge_failures];
        purge::batch(&self.pool, &self.schema, self.persistent, &texts, limit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::{MessageId, Part};

    // M3, S30: processes of all versions must meet at the same lock.
    #[test]
    fn the_lock_is_frozen() {
        let lock_of = |schema: &str, consumer: &str, id| {
            let consumer = Part::new(consumer.as_bytes()).unwrap();
            lock(&SchemaName::new(schema).unwrap(), &Identity { consumer, id })
        };
        let id = MessageId::new("s", "1").unwrap();
        let frozen = lock_of("public", "c", id.clone());
        assert_eq!(frozen, FROZEN);
        assert_ne!(frozen, lock_of("other", "c", id.clone()));
        assert_ne!(frozen, lock_of("public", "d", id));
        assert_ne!(frozen, lock_of("public", "c", MessageId::new("s1", "1").unwrap()));
    }
    const FROZEN: i64 = -3_209_130_911_308_651_771;
}
