//! The plain transaction of a guarded request without a key (H2), for engines whose transactions need no turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use sqlx::Pool;

use super::Dialect;
use super::begin::{begin, roll_back};
use super::fault::{before_commit, in_claim};
use super::slot::{Closed, Slot, Start, Starting};
use super::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::store::Unkeyed;

/// Begins at the first [`Tx`](crate::Tx) taken; costs nothing where none is.
pub(crate) struct LazyTransaction<DB: Dialect>(Arc<Slot<DB>>);

impl<DB: Dialect> LazyTransaction<DB> {
    pub(crate) fn from_pool(pool: Pool<DB>, statement: &'static str) -> Self {
        Self(Slot::lazy(Arc::new(FromPool { pool, statement })))
    }
}

struct FromPool<DB: Dialect> {
    pool: Pool<DB>,
    statement: &'static str,
}

impl<DB: Dialect> Start<DB> for FromPool<DB> {
    fn start(self: Arc<Self>) -> Starting<DB> {
        Box::pin(async move { begin(&self.pool, self.statement).await.map_err(in_claim::<DB>) })
    }
}

impl<DB: Dialect> Unkeyed for LazyTransaction<DB> {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.0));
    }

    fn finish(self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(async move {
            match self.0.close() {
                Closed::Unbegun => Ok(()),
                Closed::Held => Err(ErrorKind::HeldTransaction.into()),
                Closed::Ended(transaction) => {
                    // Best effort: what it wrote after its end is committed already.
                    let _ = roll_back(transaction).await;
                    Err(ErrorKind::TransactionEnded.into())
                }
                Closed::Intact(transaction) if !keep => {
                    // A connection that cannot roll back is closed by its pool, and the server rolls back.
                    let _ = roll_back(transaction).await;
                    Ok(())
                }
                Closed::Intact(mut transaction) => {
                    DB::probe(&mut transaction).await.map_err(before_commit::<DB>)?;
                    transaction.commit().await.map_err(|error| in_commit::<DB>(error))
                }
            }
        })
    }
}

/// There is no record to look up: a connection lost in COMMIT leaves the outcome open.
fn in_commit<DB: Dialect>(error: sqlx::Error) -> Error {
    match before_commit::<DB>(error) {
        error if error.kind() == ErrorKind::Unavailable => Error::with_source(ErrorKind::NotRecorded, error),
        error => error,
    }
}
