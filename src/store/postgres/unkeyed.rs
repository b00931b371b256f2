//! The plain transaction of a guarded request without a key (H2).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use sqlx::{PgPool, Postgres, Transaction};

use crate::db::begin::{begin, roll_back};
use crate::db::fault::{before_commit, in_claim};
use crate::db::postgres::{commit, sql};
use crate::db::slot::{Closed, Slot, Start, Starting};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::store::Unkeyed;

/// Begins at the first [`Tx`](crate::Tx) taken; costs nothing where none is.
pub(super) struct PostgresUnkeyed(Arc<Slot<Postgres>>);

impl PostgresUnkeyed {
    /// `statement` begins and sets the mark that [`sql::PROBE_MARK`] looks for.
    pub(super) fn new(pool: PgPool, statement: &'static str) -> Self {
        Self(Slot::lazy(Arc::new(FromPool { pool, statement })))
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
        extensions.insert(TxSource::new(&self.0));
    }

    fn finish(self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(async move {
            match self.0.close() {
                Closed::Unbegun => Ok(()),
                Closed::Held => Err(ErrorKind::HeldTransaction.into()),
                Closed::Ended(transaction) => Err(ended(transaction).await),
                Closed::Intact(transaction) if keep => keep_writes(transaction).await,
                Closed::Intact(transaction) => {
                    // A connection that cannot roll back is closed by its pool, and the server rolls back.
                    let _ = roll_back(transaction).await;
                    Ok(())
                }
            }
        })
    }
}

/// One probe first: sqlx's commit says Ok for an aborted transaction and for one that the handler has ended.
async fn keep_writes(mut transaction: Transaction<'static, Postgres>) -> Result<(), Error> {
    match sqlx::raw_sql(sql::PROBE_MARK).fetch_one(&mut *transaction).await {
        Ok(row) if sqlx::Row::try_get::<bool, _>(&row, 0).unwrap_or(false) => {}
        Ok(_) => return Err(ended(transaction).await),
        Err(error) => {
            let _ = roll_back(transaction).await;
            return Err(before_commit::<Postgres>(error));
        }
    }
    commit(transaction).await.map_err(|error| match before_commit::<Postgres>(error) {
        // There is no record to look up: a connection lost in COMMIT leaves the outcome open.
        error if error.kind() == ErrorKind::Unavailable => Error::with_source(ErrorKind::NotRecorded, error),
        error => error,
    })
}

/// What it wrote after its end is committed already; there is no key to close.
async fn ended(transaction: Transaction<'static, Postgres>) -> Error {
    let _ = roll_back(transaction).await;
    ErrorKind::TransactionEnded.into()
}
