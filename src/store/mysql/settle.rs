//! The ends of a claim's transaction, each run to its end whoever leaves.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{MySql, Transaction};
use tokio::time::sleep;

use super::Shared;
use crate::db::begin::begin;
use crate::db::fault::{Fault, fault};
use crate::db::mysql::session::{Left, Session};
use crate::db::mysql::statements::Finished;
use crate::db::mysql::{Flavor, says_ended, sql};
use crate::store::ClaimRequest;

/// How often to try to close a key whose row somebody looks at.
const TRIES: u32 = 5;

type Tx = Transaction<'static, MySql>;

/// What a claim's transaction is ended with.
#[derive(Clone)]
pub(super) struct Ending {
    pub(super) store: Arc<Shared>,
    pub(super) request: ClaimRequest,
    pub(super) session: Session,
}

/// What became of it.
pub(super) enum End {
    /// As asked.
    Done,
    /// It was not the claim's own any more.
    Gone,
    /// Somebody else has the key.
    Taken,
    /// Nothing was kept.
    Refused(sqlx::Error),
    /// It may be committed.
    Unknown(Option<sqlx::Error>),
}

impl Ending {
    /// Stores the answer and commits.
    pub(super) async fn commit(self, mut transaction: Tx, retention: Duration, answer: Vec<u8>) -> End {
        let statements = &self.store.statements;
        if self.store.flavor == Flavor::NoWait {
            let settled = statements.settle_and_commit(&mut transaction, &self.request, retention, answer).await;
            return self.committed(transaction, settled).await;
        }
        match statements.settle(&mut transaction, &self.request, retention, answer).await {
            Ok(true) => self.send_commit(transaction).await,
            Ok(false) => self.leave(transaction).await,
            Err(error) => self.failed(transaction, error).await,
        }
    }

    /// Undoes the handler's writes and the claim's row, stores the finished record instead, and commits.
    pub(super) async fn refuse(self, mut transaction: Tx, retention: Duration, answer: Vec<u8>) -> End {
        let statements = &self.store.statements;
        let accepted = match statements.accepted(&mut transaction, &self.request).await {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return self.leave(transaction).await,
            Err(error) => return self.failed(transaction, error).await,
        };
        if let Err(error) = sqlx::raw_sql(sql::UNDO_WRITES).execute(&mut *transaction).await {
            return self.failed(transaction, error).await;
        }
        let finished = Finished { accepted, retention, answer: &answer };
        match statements.finish(&mut transaction, &self.request, &finished).await {
            Ok(true) => self.send_commit(transaction).await,
            Ok(false) => match self.leave(transaction).await {
                End::Gone => End::Taken,
                end => end,
            },
            Err(error) => self.failed(transaction, error).await,
        }
    }

    /// Undoes everything, if it is still the claim's transaction that holds it.
    pub(super) async fn undo(self, mut transaction: Tx) -> End {
        match self.session.run(&mut transaction, sql::UNDO, "undone").await {
            Ok(true) => End::Done,
            Ok(false) => {
                self.session.leave(transaction).await;
                End::Unknown(None)
            }
            Err(error) => self.failed(transaction, error).await,
        }
    }

    /// Gives up a transaction that is not the claim's own any more.
    pub(super) async fn leave(self, transaction: Tx) -> End {
        self.session.leave(transaction).await;
        End::Gone
    }

    /// Closes the key if the claim's row is committed; whether it is.
    pub(super) async fn close_key(self) -> Result<bool, sqlx::Error> {
        let mut tries = 0;
        loop {
            match self.try_to_close_key().await {
                // Somebody who asks for the key holds the row for a moment.
                Err(error) if fault::<MySql>(&error) == Fault::Conflict && tries < TRIES => {
                    tries += 1;
                    sleep(Duration::from_millis(20)).await;
                }
                other => return other,
            }
        }
    }

    async fn try_to_close_key(&self) -> Result<bool, sqlx::Error> {
        let mut transaction = begin(&self.store.pool, sql::BEGIN_OWN).await?;
        // Read first: a rival's row must not be waited for.
        if self.store.statements.accepted(&mut transaction, &self.request).await?.is_none() {
            return Ok(false);
        }
        let closed = self.store.statements.orphan(&mut transaction, &self.request).await?;
        transaction.commit().await?;
        Ok(closed)
    }

    async fn send_commit(self, mut transaction: Tx) -> End {
        let committed = self.session.run(&mut transaction, sql::COMMIT, "committed").await;
        self.committed(transaction, committed).await
    }

    /// After the packet with the COMMIT in it.
    async fn committed(self, transaction: Tx, answered: Result<bool, sqlx::Error>) -> End {
        let error = match answered {
            // The server has ended it; what sqlx adds when this is dropped ends nothing.
            Ok(true) => return End::Done,
            Ok(false) => {
                self.session.leave(transaction).await;
                return End::Unknown(None);
            }
            Err(error) => error,
        };
        match self.session.leave(transaction).await {
            // The connection's answers are its own, so this error was too.
            Left::InOrder if says_ended(&error) => End::Gone,
            Left::InOrder => End::Refused(error),
            Left::Ended => End::Unknown(Some(error)),
        }
    }

    /// After a failure before any COMMIT was sent.
    async fn failed(self, transaction: Tx, error: sqlx::Error) -> End {
        self.session.leave(transaction).await;
        if says_ended(&error) { End::Gone } else { End::Refused(error) }
    }
}
