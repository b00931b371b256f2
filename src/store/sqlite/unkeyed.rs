//! The plain transaction of a guarded request without a key (H2), in the same queue as the others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::Extensions;
use sqlx::Sqlite;

use super::lending::Lending;
use super::shared::Shared;
use crate::db::fault::{Fault, before_commit, fault};
use crate::db::slot::{Closed, Slot};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::store::Unkeyed;

/// Begins at the first [`Tx`](crate::Tx) taken; costs nothing where none is.
pub(super) struct SqliteUnkeyed {
    slot: Arc<Slot<Sqlite>>,
    lending: Arc<Lending>,
}

impl SqliteUnkeyed {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let lending = Lending::new(shared, None);
        Self { slot: Slot::lazy(Arc::clone(&lending) as _), lending }
    }
}

impl Unkeyed for SqliteUnkeyed {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.slot));
    }

    fn finish(self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        let Self { slot, lending } = *self;
        let shared = Arc::clone(&lending.shared);
        Box::pin(async move { shared.run(async move { finish(lending, slot.close(), keep).await }).await? })
    }
}

async fn finish(lending: Arc<Lending>, closed: Closed<Sqlite>, keep: bool) -> Result<(), Error> {
    let mut writing = match closed {
        Closed::Unbegun => return Ok(()),
        Closed::Held => return Err(ErrorKind::HeldTransaction.into()),
        Closed::Ended(transaction) => {
            lending.reunite(transaction).undo().await;
            return Err(ErrorKind::TransactionEnded.into());
        }
        Closed::Intact(transaction) => lending.reunite(transaction),
    };
    match writing.is_intact().await {
        Ok(true) => {}
        Ok(false) => {
            writing.undo().await;
            return Err(ErrorKind::TransactionEnded.into());
        }
        Err(error) => return Err(before_commit::<Sqlite>(error)),
    }
    if !keep {
        writing.undo().await;
        return Ok(());
    }
    writing.commit().await.map_err(|(error, _)| match fault::<Sqlite>(&error) {
        // There is no record to look up: an error of the disk in COMMIT leaves the outcome open.
        Fault::Lost => Error::with_source(ErrorKind::NotRecorded, error),
        _ => before_commit::<Sqlite>(error),
    })
}
