//! The session behind a lent transaction, and how it comes back in order.
//!
//! While its transaction is lent a session is read-only by default (see [`sql`]) and may hold a named lock. Both outlive
//! a ROLLBACK. So no transaction is merely dropped: its session is put in order, and one that has not said so is ended.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::mysql::MySqlTransactionManager;
use sqlx::pool::PoolConnection;
use sqlx::{MySql, MySqlConnection, MySqlPool, Row, SqlStr, Transaction};
use sqlx_core::transaction::TransactionManager;
use tokio::time::timeout;

use super::sql;
use crate::db::begin::{begin_on, in_background};
use crate::db::slot::{depth, unwind};
use crate::db::sql::{Hex, mysql_kill, mysql_packet};

/// How long a session may take to come back in order before it is ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a session carries for one claim.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pool: MySqlPool,
    lock: Option<Hex>,
    mark: Hex,
    /// How long it may say nothing.
    idle: Option<Duration>,
    /// The server's number of it, once it is known.
    number: Arc<OnceLock<u64>>,
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
    pub(crate) fn new(pool: MySqlPool, lock: Option<Hex>, mark: &[u8; 16]) -> Self {
        Self { pool, lock, mark: Hex::new(mark), idle: None, number: Arc::default() }
    }

    /// Bounds how long it may say nothing while its transaction is lent.
    pub(crate) fn bounded(self, idle: Option<Duration>) -> Self {
        Self { idle, ..self }
    }

    /// Remembers which session it is.
    pub(crate) fn is_number(&self, number: u64) {
        // It stays the same through all tries of a claim.
        let _ = self.number.set(number);
    }

    /// A packet for this claim.
    pub(crate) fn packet(&self, template: &'static str) -> SqlStr {
        mysql_packet(template, self.lock.as_ref(), &self.mark, self.idle)
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
    pub(crate) async fn lend(
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
        self.leave_open(&mut transaction).await
    }

    /// The same for an owner who has still something to say on the connection.
    pub(crate) async fn leave_open(&self, transaction: &mut Transaction<'static, MySql>) -> Left {
        unwind(transaction);
        if depth::<MySql>(transaction) == 1 {
            // Sent before anything is waited for: a connection whose answers are not its own is rolled back all the same.
            MySqlTransactionManager::start_rollback(transaction);
        }
        let left = timeout(PATIENCE, self.run(transaction, sql::LEAVE, "left")).await;
        if matches!(left, Ok(Ok(true))) {
            return Left::InOrder;
        }
        if !self.end().await {
            let _ = timeout(PATIENCE, sqlx::raw_sql(sql::KILL).execute(&mut **transaction)).await;
        }
        // The pool finds it dead and lets it go.
        Left::Ended
    }

    /// Ends the session from another one of the pool, if its number is known and there is one.
    pub(crate) async fn end(&self) -> bool {
        let Some(number) = self.number.get() else { return false };
        let ending = async {
            let mut other = self.pool.acquire().await?;
            sqlx::raw_sql(mysql_kill(*number)).execute(&mut *other).await
        };
        matches!(timeout(PATIENCE, ending).await, Ok(Ok(_)))
    }

    /// The same, without waiting for it.
    pub(crate) fn end_in_background(&self) {
        let session = self.clone();
        in_background(async move {
            session.end().await;
        });
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
