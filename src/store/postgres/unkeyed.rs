//! The plain transaction of a guarded request without a key (H2).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::time::timeout;

use crate::db::begin::{begin, roll_back};
use crate::db::fault::{before_commit, in_claim};
use crate::db::postgres::{commit, sql};
use crate::db::slot::{Closed, Slot, Start, Starting};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::store::Unkeyed;

/// Begins at the first [`Tx`](crate::Tx) taken; costs nothing where none is.
pub(super) struct PostgresUnkeyed {
    slot: Arc<Slot<Postgres>>,
    /// How long each round trip of the end may take.
    limit: Duration,
}

impl PostgresUnkeyed {
    /// `statement` begins and sets the mark that [`sql::PROBE_MARK`] looks for.
    pub(super) fn new(pool: PgPool, statement: &'static str, limit: Duration) -> Self {
        Self { slot: Slot::lazy(Arc::new(FromPool { pool, statement })), limit }
    }
}

struct FromPool {
    pool: PgPool,
    statement: &'static str,
}

impl Start<Postgres> for FromPool {
    fn start(self: Arc<Self>) -> Starting<Postgres> {
        Box::pin(async move { begin(&self.pool, self.statement).await.map_err(in_claim::<Postgres>) })
    }
}

impl Unkeyed for PostgresUnkeyed {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.slot));
    }

    fn finish(self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        let Self { slot, limit } = *self;
        Box::pin(async move {
            match slot.close() {
                Closed::Unbegun => Ok(()),
                Closed::Held => Err(ErrorKind::HeldTransaction.into()),
                Closed::Ended(transaction) => Err(ended(transaction, limit).await),
                Closed::Intact(transaction) if keep => keep_writes(transaction, limit).await,
                Closed::Intact(transaction) => {
                    undo(transaction, limit).await;
                    Ok(())
                }
            }
        })
    }
}

/// One probe first: sqlx's commit says Ok for an aborted transaction and for one that the handler has ended.
async fn keep_writes(mut transaction: Transaction<'static, Postgres>, limit: Duration) -> Result<(), Error> {
    match timeout(limit, sqlx::raw_sql(sql::PROBE_MARK).fetch_one(&mut *transaction)).await {
        Ok(Ok(row)) if sqlx::Row::try_get::<bool, _>(&row, 0).unwrap_or(false) => {}
        Ok(Ok(_)) => return Err(ended(transaction, limit).await),
        Ok(Err(error)) => {
            undo(transaction, limit).await;
            return Err(before_commit::<Postgres>(error));
        }
        // Nothing was committed: dropped with its connection, the server rolls it back.
        Err(elapsed) => return Err(Error::with_source(ErrorKind::Unavailable, elapsed)),
    }
    // There is no record to look up: a connection lost in COMMIT leaves the outcome open.
    match timeout(limit, commit(transaction)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => match before_commit::<Postgres>(error) {
            error if error.kind() == ErrorKind::Unavailable => Err(Error::with_source(ErrorKind::NotRecorded, error)),
            error => Err(error),
        },
        Err(elapsed) => Err(Error::with_source(ErrorKind::NotRecorded, elapsed)),
    }
}

/// What it wrote after its end is committed already; there is no key to close.
async fn ended(transaction: Transaction<'static, Postgres>, limit: Duration) -> Error {
    undo(transaction, limit).await;
    ErrorKind::TransactionEnded.into()
}

/// A connection that cannot roll back is closed by its pool, and the server rolls back.
async fn undo(transaction: Transaction<'static, Postgres>, limit: Duration) {
    let _ = timeout(limit, roll_back(transaction)).await;
}
