//! The plain transaction of a guarded request without a key (H2).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use sqlx::{MySql, MySqlPool, Transaction};
use tokio::time::timeout;
use uuid::Uuid;

use crate::db::begin::undisturbed;
use crate::db::fault::{before_commit, in_claim};
use crate::db::mysql::session::{Left, Lent, Session};
use crate::db::mysql::{says_ended, sql};
use crate::db::slot::{Closed, Slot, Start, Starting};
use crate::db::tx::TxSource;
use crate::error::{Error, ErrorKind};
use crate::store::Unkeyed;

/// Begins at the first [`Tx`](crate::Tx) taken; costs nothing where none is.
pub(super) struct MySqlUnkeyed {
    slot: Arc<Slot<MySql>>,
    session: Session,
    limit: Duration,
}

impl MySqlUnkeyed {
    /// `begin` is the packet that begins; `limit` bounds the end.
    pub(super) fn new(pool: MySqlPool, begin: &'static str, limit: Duration) -> Self {
        let session = Session::new(pool.clone(), None, Uuid::new_v4().as_bytes());
        let slot = Slot::lazy(Arc::new(FromPool { pool, begin, session: session.clone() }));
        Self { slot, session, limit }
    }
}

struct FromPool {
    pool: MySqlPool,
    begin: &'static str,
    session: Session,
}

impl Start<MySql> for FromPool {
    fn start(self: Arc<Self>) -> Starting<MySql> {
        Box::pin(async move {
            let connection = self.pool.acquire().await.map_err(in_claim::<MySql>)?;
            let begun = undisturbed(async move { self.session.lend(connection, self.begin).await }).await;
            begun.map(Lent::into_transaction).map_err(in_claim::<MySql>)
        })
    }

    fn discard(self: Arc<Self>, transaction: Transaction<'static, MySql>) {
        self.session.leave_in_background(transaction);
    }
}

impl Unkeyed for MySqlUnkeyed {
    fn attach(&self, extensions: &mut Extensions) {
        extensions.insert(TxSource::new(&self.slot));
    }

    fn finish(self: Box<Self>, keep: bool) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(async move {
            let session = self.session.clone();
            match self.slot.close() {
                Closed::Unbegun => Ok(()),
                Closed::Held => Err(ErrorKind::HeldTransaction.into()),
                Closed::Ended(transaction) => {
                    session.leave_in_background(transaction);
                    Err(ErrorKind::TransactionEnded.into())
                }
                Closed::Intact(transaction) if keep => {
                    let kept = undisturbed(keep_writes(session, transaction));
                    timeout(self.limit, kept)
                        .await
                        .unwrap_or_else(|elapsed| Err(Error::with_source(ErrorKind::NotRecorded, elapsed)))
                }
                Closed::Intact(transaction) => {
                    // A connection that cannot roll back is ended, and the server rolls back.
                    let left = undisturbed(async move { session.leave(transaction).await });
                    let _ = timeout(self.limit, left).await;
                    Ok(())
                }
            }
        })
    }
}

/// The packet releases the savepoint before it commits: there is none in a transaction that the server has rolled back,
/// or that the handler has ended.
async fn keep_writes(session: Session, mut transaction: Transaction<'static, MySql>) -> Result<(), Error> {
    let committed = session.run(&mut transaction, sql::COMMIT, "committed").await;
    let error = match committed {
        Ok(true) => return Ok(()),
        Ok(false) => None,
        Err(error) => Some(error),
    };
    // There is no record to look up: a connection lost in COMMIT leaves the outcome open.
    match (session.leave(transaction).await, error) {
        (Left::InOrder, Some(error)) if says_ended(&error) => Err(ErrorKind::TransactionEnded.into()),
        (Left::InOrder, Some(error)) => Err(before_commit::<MySql>(error)),
        (Left::Ended, Some(error)) => Err(Error::with_source(ErrorKind::NotRecorded, error)),
        (_, None) => Err(ErrorKind::NotRecorded.into()),
    }
}
