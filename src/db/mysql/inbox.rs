//! The inbox on MySQL and MariaDB.
//!
//! An INSERT of a message that somebody has inserted and not committed would wait for it. MariaDB gives up instead. MySQL
//! has no such wait: there a locking look that does not wait stands before it, and what is left is the time in which two
//! rivals come between each other's two statements. A transaction goes on after either refusal.
//!
//! After a deadlock the server goes on without a transaction, and what follows would be permanent at once. So a
//! transaction of the caller's ends with its session there, and one that is begun here has a session that cannot write
//! behind it (see [`super::session`]).

pub(super) mod sql;

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySql, MySqlConnection, MySqlPool, Row, SqlStr};
use uuid::Uuid;

use super::call::{Bound, call, is_found};
use super::inspect::{Inspected, inspect};
use super::purge::{batch, by_hand};
use super::session::{Left, Session};
use super::sql::{BEGIN_READ_COMMITTED, BEGIN_REPEATABLE_READ, BEGIN_SERIALIZABLE, COMMIT, END_FOR_GOOD, NO_WAIT};
use super::{Flavor, is_number, says_duplicate, says_ended, stats};
use crate::db::begin::undisturbed;
use crate::db::fault::{Fault, before_commit, fault, in_claim};
use crate::db::inbox::{
    Identity, InboxDialect, Lent, Met, New, Own, Rows, Settings, Stood, Uncommitted, Whose, as_json,
};
use crate::db::lease::microseconds;
use crate::db::migrate;
use crate::db::sql::{SchemaName, mysql_no_wait};
use crate::error::{Error, ErrorKind};
use crate::purge::Batch;
use crate::store::{Count, Isolation};
use sql::Texts;

/// How often a mark is looked for that a purge takes away meanwhile.
const LOOKS: usize = 3;

impl InboxDialect for MySql {
    type Inbox = MySqlInbox;
}

/// The tables of one database.
#[expect(unnameable_types, reason = "part of the sealed trait `InboxDialect`")]
#[derive(Clone, Debug)]
pub struct MySqlInbox {
    pool: MySqlPool,
    schema: SchemaName,
    flavor: Flavor,
    texts: Arc<Texts>,
    begin: &'static str,
    idle: Option<Duration>,
    /// Whether a mark is looked for outside of a transaction: not where one that is not committed would be seen.
    peeks: bool,
}

/// The session behind a transaction that is begun here.
#[expect(unnameable_types, reason = "part of the sealed trait `InboxDialect`")]
#[derive(Clone, Debug)]
pub struct LentSession(Session);

/// With parameters of its own, in bytes: as text they would be compared by a collation.
fn at(query: Bound, identity: &Identity) -> Bound {
    identity.parts().into_iter().fold(query, |query, part| query.bind(part.to_vec()))
}

fn query(text: &SqlStr) -> Bound {
    sqlx::query(text.clone())
}

fn digest(row: &MySqlRow) -> Result<Met, sqlx::Error> {
    row.try_get("digest").map(Met::Mark)
}

/// Somebody has the row, or the place where it would stand; the transaction goes on.
fn says_locked(error: &sqlx::Error) -> bool {
    is_number(error, &[1205, 3572])
}

/// The server has rolled the whole transaction back: deadlock, changed since the snapshot, lock table full.
fn says_rolled_back(error: &sqlx::Error) -> bool {
    is_number(error, &[1213, 1020, 1206])
}

impl MySqlInbox {
    async fn insert(&self, connection: &mut MySqlConnection, New { own, digest }: &New) -> Result<(), sqlx::Error> {
        at(query(&self.texts.accept), &own.identity)
            .bind(own.token.to_vec())
            .bind(digest.map(|digest| digest.as_bytes().to_vec()))
            .bind(microseconds(own.retention))
            .execute(connection)
            .await
            .map(drop)
    }

    async fn read(
        &self,
        connection: &mut MySqlConnection,
        text: &SqlStr,
        new: &New,
    ) -> Result<Option<Met>, sqlx::Error> {
        let row = at(query(text), &new.own.identity).fetch_optional(connection).await?;
        row.as_ref().map(digest).transpose()
    }

    /// Whether it was me is told by an INSERT without an error and by nothing else.
    async fn accept_one(&self, connection: &mut MySqlConnection, new: &New) -> Result<Met, sqlx::Error> {
        for _ in 0..LOOKS {
            if self.flavor == Flavor::NamedLock {
                match self.read(connection, &self.texts.lock, new).await {
                    Ok(Some(met)) => return Ok(met),
                    Ok(None) => {}
                    // Another look may have locked a mark that is there.
                    Err(error) if says_locked(&error) => {
                        return Ok(self.read(connection, &self.texts.see, new).await?.unwrap_or(Met::Rival));
                    }
                    Err(error) => return Err(error),
                }
            }
            match self.insert(connection, new).await {
                Ok(()) => return Ok(Met::Nothing(None)),
                Err(error) if says_locked(&error) => return Ok(Met::Rival),
                Err(error) if says_duplicate(&error) => {}
                Err(error) => return Err(error),
            }
            if self.flavor == Flavor::NoWait {
                match self.read(connection, &self.texts.look, new).await {
                    Ok(Some(met)) => return Ok(met),
                    Ok(None) => {}
                    Err(error) if says_locked(&error) => return Ok(Met::Rival),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Met::Rival)
    }

    /// Whether all of them were inserted. If not, none was.
    async fn insert_all(&self, connection: &mut MySqlConnection, marks: &[&New]) -> Result<bool, sqlx::Error> {
        let Some(New { own, .. }) = marks.first() else { return Ok(true) };
        let insert = query(&self.texts.accept_all)
            .bind(own.identity.consumer.as_bytes().to_vec())
            .bind(microseconds(own.retention))
            .bind(as_json(marks.iter().copied()));
        match insert.execute(connection).await {
            Ok(_) => Ok(true),
            Err(error) if says_duplicate(&error) || says_locked(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All at once; then without those that are there; then one by one, since a rival is about.
    async fn accept_many(&self, connection: &mut MySqlConnection, marks: &[New]) -> Result<Vec<Met>, sqlx::Error> {
        let mut met: Vec<Option<Met>> = vec![None; marks.len()];
        let mut left: Vec<&New> = marks.iter().collect();
        if self.flavor == Flavor::NoWait && marks.len() > 1 {
            let mut all = self.insert_all(connection, &left).await?;
            if !all {
                match self.look_all(connection, marks, &mut met).await {
                    Ok(()) => {}
                    Err(error) if says_locked(&error) => {}
                    Err(error) => return Err(error),
                }
                left = marks.iter().zip(&met).filter(|(_, met)| met.is_none()).map(|(new, _)| new).collect();
                all = self.insert_all(connection, &left).await?;
            }
            if all {
                return Ok(met.into_iter().map(|met| met.unwrap_or(Met::Nothing(None))).collect());
            }
        }
        let mut told = Vec::with_capacity(marks.len());
        for (new, met) in marks.iter().zip(met) {
            told.push(match met {
                Some(met) => met,
                None => self.accept_one(connection, new).await?,
            });
        }
        Ok(told)
    }

    async fn look_all(
        &self,
        connection: &mut MySqlConnection,
        marks: &[New],
        met: &mut [Option<Met>],
    ) -> Result<(), sqlx::Error> {
        let Some(New { own, .. }) = marks.first() else { return Ok(()) };
        let look = query(&self.texts.look_all).bind(as_json(marks)).bind(own.identity.consumer.as_bytes().to_vec());
        for row in look.fetch_all(connection).await? {
            let token: Vec<u8> = row.try_get("token")?;
            let seen = marks.iter().zip(met.iter_mut()).find(|(new, _)| new.own.token[..] == token[..]);
            if let Some((_, place)) = seen {
                *place = Some(digest(&row)?);
            }
        }
        Ok(())
    }

    async fn update(&self, connection: &mut MySqlConnection, own: &Own) -> Result<bool, sqlx::Error> {
        let confirm = at(query(&self.texts.confirm).bind(microseconds(own.retention)), &own.identity);
        Ok(is_found(&confirm.bind(own.token.to_vec()).execute(connection).await?))
    }

    fn failure(&self, identity: &Identity, retention: Duration) -> Bound {
        at(query(&self.texts.count_failure), identity).bind(microseconds(retention))
    }

    async fn write(&self, query: Bound) -> Result<(), sqlx::Error> {
        call(&self.pool, move |connection| Box::pin(query.execute(connection))).await.map(drop)
    }
}

/// Ends the session of a transaction that must not go on. It answers with an error, or not at all.
async fn end_for_good(connection: &mut MySqlConnection) {
    let _ = sqlx::raw_sql(END_FOR_GOOD).execute(connection).await;
}

async fn commit(inbox: MySqlInbox, mut lent: Lent<MySqlInbox>, own: Own) -> Result<(), Uncommitted<MySqlInbox>> {
    match inbox.update(&mut lent.transaction, &own).await {
        Ok(true) => {}
        Ok(false) => return Err(Uncommitted::open(ErrorKind::TransactionEnded.into(), lent)),
        Err(error) if says_ended(&error) => {
            return Err(Uncommitted::open(Error::with_source(ErrorKind::TransactionEnded, error), lent));
        }
        Err(error) => return Err(Uncommitted::open(before_commit::<MySql>(error), lent)),
    }
    let error = match lent.session.0.run(&mut lent.transaction, COMMIT, "committed").await {
        Ok(true) => return Ok(()),
        Ok(false) => None,
        Err(error) => Some(error),
    };
    // On a session that does not echo nothing is known of the COMMIT: the redelivery decides.
    match (lent.session.0.leave_open(&mut lent.transaction).await, error) {
        (Left::InOrder, Some(error)) if says_ended(&error) => {
            Err(Uncommitted::open(Error::with_source(ErrorKind::TransactionEnded, error), lent))
        }
        (Left::InOrder, Some(error)) => Err(Uncommitted::open(before_commit::<MySql>(error), lent)),
        (Left::Ended, Some(error)) => Err(Uncommitted::lost(Error::with_source(ErrorKind::NotRecorded, error))),
        (_, None) => Err(Uncommitted::lost(ErrorKind::NotRecorded.into())),
    }
}

impl Rows for MySqlInbox {
    type Engine = MySql;
    type Session = LentSession;

    async fn open(pool: MySqlPool, settings: Settings) -> Result<Self, Error> {
        let setup = |what: &str| Err(Error::with_source(ErrorKind::Setup, what));
        let Inspected { flavor, schema, rolls_back_on_timeout, reads_dirty } = inspect(&pool, settings.schema).await?;
        let flavor = if settings.like_mysql { Flavor::NamedLock } else { flavor };
        let isolation = settings.isolation.unwrap_or_default();
        if rolls_back_on_timeout {
            return setup("innodb_rollback_on_timeout must be off: a busy message would end its transaction");
        }
        if flavor == Flavor::NamedLock && isolation != Isolation::ReadCommitted {
            return setup("on MySQL an inbox works under READ COMMITTED alone");
        }
        let prefix = match flavor {
            Flavor::NoWait => NO_WAIT,
            Flavor::NamedLock => "",
        };
        Ok(Self {
            texts: Arc::new(Texts::new(|template| mysql_no_wait(template, &schema, prefix))),
            pool,
            schema,
            flavor,
            begin: match isolation {
                Isolation::ReadCommitted => BEGIN_READ_COMMITTED,
                Isolation::RepeatableRead => BEGIN_REPEATABLE_READ,
                Isolation::Serializable => BEGIN_SERIALIZABLE,
            },
            idle: settings.idle,
            peeks: !reads_dirty,
        })
    }

    async fn migrate(&self) -> Result<(), Error> {
        migrate::mysql(&self.pool, &self.schema).await
    }

    fn error(error: sqlx::Error) -> Error {
        in_claim::<MySql>(error)
    }

    async fn lend(&self) -> Result<Lent<Self>, Error> {
        let session = Session::new(self.pool.clone(), None, Uuid::new_v4().as_bytes()).bounded(self.idle);
        let connection = self.pool.acquire().await.map_err(in_claim::<MySql>)?;
        let (lending, begin) = (session.clone(), self.begin);
        let begun = undisturbed(async move { lending.lend(connection, begin).await }).await;
        let transaction = begun.map_err(in_claim::<MySql>)?.into_transaction();
        Ok(Lent { transaction, session: LentSession(session) })
    }

    async fn accept(&self, connection: &mut MySqlConnection, marks: &[New], whose: Whose) -> Result<Vec<Met>, Error> {
        match self.accept_many(connection, marks).await {
            Ok(met) => Ok(met),
            Err(error) if says_rolled_back(&error) => {
                if whose == Whose::Own {
                    // Nothing was in it, and its session cannot write.
                    return Ok(vec![Met::Rival; marks.len()]);
                }
                end_for_good(connection).await;
                Err(Error::with_source(ErrorKind::TransactionLost, error))
            }
            Err(error) if whose != Whose::Own && fault::<MySql>(&error) == Fault::Lost => {
                Err(Error::with_source(ErrorKind::TransactionLost, error))
            }
            Err(error) => Err(in_claim::<MySql>(error)),
        }
    }

    async fn peek(&self, identity: &Identity) -> Result<Option<Option<Vec<u8>>>, sqlx::Error> {
        if !self.peeks {
            return Ok(None);
        }
        let see = at(query(&self.texts.see), identity);
        let row = call(&self.pool, move |connection| Box::pin(see.fetch_optional(connection))).await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    async fn retract(&self, connection: &mut MySqlConnection, own: &Own) -> Result<(), sqlx::Error> {
        at(query(&self.texts.retract), &own.identity).bind(own.token.to_vec()).execute(connection).await.map(drop)
    }

    async fn confirm(&self, connection: &mut MySqlConnection, own: &Own) -> Result<bool, sqlx::Error> {
        let confirmed = self.update(connection, own).await;
        if !matches!(confirmed, Ok(true)) {
            end_for_good(connection).await;
        }
        confirmed
    }

    async fn failures(&self, connection: &mut MySqlConnection, identity: &Identity) -> Result<u64, sqlx::Error> {
        let row = at(query(&self.texts.failures), identity).fetch_optional(connection).await?;
        let failures = row.map(|row| row.try_get::<i64, _>(0)).transpose()?;
        Ok(failures.unwrap_or_default().unsigned_abs())
    }

    async fn commit(&self, lent: Lent<Self>, own: &Own) -> Result<(), Uncommitted<Self>> {
        let (inbox, own) = (self.clone(), own.clone());
        undisturbed(commit(inbox, lent, own)).await
    }

    async fn undo(&self, mut lent: Lent<Self>, failed: Option<&Own>) -> Result<(), sqlx::Error> {
        let count = failed.map(|own| self.failure(&own.identity, own.retention));
        undisturbed(async move {
            let left = lent.session.0.leave_open(&mut lent.transaction).await;
            match count {
                Some(_) if left == Left::Ended => Err(sqlx::Error::PoolTimedOut),
                // The same connection, which is in no transaction now.
                Some(count) => count.execute(&mut *lent.transaction).await.map(drop),
                None => Ok(()),
            }
        })
        .await
    }

    fn discard(&self, lent: Lent<Self>) {
        lent.session.0.leave_in_background(lent.transaction);
    }

    async fn count_failure(&self, identity: &Identity, retention: Duration) -> Result<(), sqlx::Error> {
        self.write(self.failure(identity, retention)).await
    }

    async fn forget_failures(&self, identity: &Identity) -> Result<(), sqlx::Error> {
        self.write(at(query(&self.texts.forget_failures), identity)).await
    }

    async fn stats(&self, most: u64) -> Result<Stood, sqlx::Error> {
        stats::inbox(&self.pool, &self.schema, most).await
    }

    async fn consumer(&self, after: &[u8], most: u64) -> Result<Option<(Vec<u8>, Count)>, sqlx::Error> {
        stats::consumer(&self.pool, &self.schema, after, most).await
    }

    async fn purge(&self, limit: u32) -> Result<u64, sqlx::Error> {
        let texts = &self.texts;
        let marks = by_hand(&self.pool, &texts.lock_expired, &texts.delete_expired, limit).await?;
        let failures = by_hand(&self.pool, &texts.lock_expired_failures, &texts.delete_expired_failures, limit).await?;
        Ok(marks + failures)
    }

    async fn purge_batch(&self, limit: u32) -> Result<Batch, sqlx::Error> {
        let texts = &self.texts;
        let marks = (texts.lock_expired.clone(), texts.delete_expired.clone());
        let failures = (texts.lock_expired_failures.clone(), texts.delete_expired_failures.clone());
        batch(&self.pool, &self.schema, vec![marks, failures], limit).await
    }
}
