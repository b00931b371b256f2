//! The session behind a lent transaction, and how it comes back in order.
//!
//! While its transaction is lent a session is read-only by default (see [`sql`]) and may hold a named lock. Both outlive
//! a ROLLBACK. So no transaction is merely dropped: its session is put in order, and one that has not said so is ended.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{MySql, MySqlConnection, Row, SqlStr, Transaction};

use super::sql;
use crate::db::begin::{begin_on, in_background};
use crate::db::slot::unwind;
use crate::db::sql::{Hex, mysql_packet};

/// What a session carries for one claim.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    lock: Option<Hex>,
    mark: Hex,
}

/// How a session was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing is open, nothing is held, and its answers were its own.
    InOrder,
    /// It is ended: it did not answer, or answered something else.
    Ended,
}

impl Session {
    /// `mark`: a random name.
    pub(crate) fn new(lock: Option<Hex>, mark: &[u8; 16]) -> Self {
        Self { lock, mark: Hex::new(mark) }
    }

    /// A packet for this claim.
    pub(crate) fn packet(&self, template: &'static str) -> SqlStr {
        mysql_packet(template, self.lock.as_ref(), &self.mark)
    }

    /// The name of the lock, if it takes one.
    pub(crate) fn lock_name(&self) -> Option<String> {
        self.lock.as_ref().map(|lock| format!("idem:{}", lock.as_str()))
    }

    /// Sends a packet that ends with the echo of `word` and the mark, and tells whether it came back. A connection on
    /// which the handler has dropped a statement half-way may answer with something older.
    pub(crate) async fn run(
        &self,
        connection: &mut MySqlConnection,
        template: &'static str,
        word: &str,
    ) -> Result<bool, sqlx::Error> {
        let rows = sqlx::raw_sql(self.packet(template)).fetch_all(connection).await?;
        let echo = rows.last().and_then(|row| row.try_get::<String, _>(0).ok());
        Ok(echo.is_some_and(|echo| echo.strip_prefix(word).is_some_and(|rest| rest.trim_start() == self.mark.as_str())))
    }

    /// Begins the claim's transaction by a packet of its own.
    pub(crate) async fn begin(
        &self,
        connection: PoolConnection<MySql>,
        template: &'static str,
    ) -> Result<Lent, sqlx::Error> {
        let transaction = begin_on(connection, self.packet(template)).await?;
        Ok(Lent { transaction: Some(transaction), session: self.clone() })
    }

    /// The same as [`Session::leave`], without waiting for it.
    pub(crate) fn leave_in_background(&self, transaction: Transaction<'static, MySql>) {
        let session = self.clone();
        in_background(async move {
            session.leave(transaction).await;
        });
    }

    /// Rolls back whatever is open, and gives the session back.
    pub(crate) async fn leave(&self, mut transaction: Transaction<'static, MySql>) -> Left {
        unwind(&mut transaction);
        if matches!(self.run(&mut transaction, sql::LEAVE, "left").await, Ok(true)) {
            return Left::InOrder;
        }
        // The pool finds it dead and lets it go.
        let _ = sqlx::raw_sql(sql::KILL).execute(&mut *transaction).await;
        Left::Ended
    }
}

/// A transaction on its way from one owner to the next. Dropped, its session is put in order.
pub(crate) struct Lent {
    /// Present until it is taken or dropped.
    transaction: Option<Transaction<'static, MySql>>,
    session: Session,
}

impl Lent {
    /// The transaction, for an owner that puts its session in order itself.
    pub(crate) fn into_transaction(mut self) -> Transaction<'static, MySql> {
        match self.transaction.take() {
            Some(transaction) => transaction,
            None => unreachable!("present until it is taken or dropped"),
        }
    }
}

impl Deref for Lent {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        match &self.transaction {
            Some(transaction) => transaction,
            None => unreachable!("present until it is taken or dropped"),
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        match &mut self.transaction {
            Some(transaction) => transaction,
            None => unreachable!("present until it is taken or dropped"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            self.session.leave_in_background(transaction);
        }
    }
}
