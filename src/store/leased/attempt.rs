//! What a handler under a lease does in a transaction of its own (S23, S24).

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Transaction;

use super::claim::Control;
use crate::attempt::Attempt;
use crate::db::LeaseDialect;
use crate::db::fault::{Fault, fault};
use crate::db::lease::{Standing, Table};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};

/// How far earlier attempts have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed<T> {
    /// The name of the last step that is done.
    pub step: String,
    /// What the steps so far have given.
    pub state: T,
}

impl Attempt {
    /// Makes sure that a transaction of the handler's own can commit only while this attempt owns the key: call it in
    /// the transaction before the writes that count. For [`LeaseStore`](super::LeaseStore).
    ///
    /// It locks the key's row until the transaction ends, and prolongs the lease. Meanwhile nobody can take the key over
    /// (duplicates are told 409 at once), and the lease cannot be renewed: keep the transaction shorter than the lease,
    /// or another attempt may follow as soon as it has ended. End it before the handler returns, since the answer is
    /// recorded in the same row; and call [`Attempt::dispatching`] outside it.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another attempt owns the key, or an operator has ended it, and **the transaction cannot
    /// commit**. [`ErrorKind::Setup`] for a store of another kind or another database, for a nested transaction (what it
    /// undoes is not the whole), and on SQLite for a connection without `foreign_keys`. Anything else is the database's
    /// own trouble: roll back.
    ///
    /// MySQL and MariaDB know no transaction that cannot commit. There the transaction's session is ended, after every error
    /// but that of a nested one: later statements and the COMMIT fail, and the pool opens another connection.
    ///
    /// # Cancel safety
    /// Dropped, the transaction may or may not be guarded; if the lease is lost it may or may not be able to commit.
    pub async fn guard<DB: LeaseDialect>(&self, transaction: &mut Transaction<'_, DB>) -> Result<(), Error> {
        self.hold(transaction, None).await
    }

    /// As [`Attempt::guard`], and keeps how far the operation has come: the name of the last step that is done, and what
    /// the steps so far have given, as JSON. It is committed with the handler's own writes or not at all, and the next
    /// attempt finds it by [`Attempt::resume`]. A later checkpoint replaces it.
    ///
    /// From the first committed checkpoint on the key belongs to this operation: an attempt that is abandoned (by 5xx, for
    /// instance) does not free it for another request, and the next request runs as the next attempt.
    ///
    /// A checkpoint does not take [`Attempt::dispatching`] back. With
    /// [`OnUnknown::HoldDispatched`](crate::store::OnUnknown::HoldDispatched) an attempt that stops after it is held all
    /// the same; handlers that can go on from every checkpoint want [`OnUnknown::Rerun`](crate::store::OnUnknown::Rerun).
    ///
    /// The state is stored as it is, whatever codec the bodies pass.
    ///
    /// # Errors
    /// As [`Attempt::guard`]. [`ErrorKind::Setup`], too, for a state that JSON cannot hold.
    ///
    /// # Cancel safety
    /// As [`Attempt::guard`].
    pub async fn checkpoint<DB: LeaseDialect>(
        &self,
        transaction: &mut Transaction<'_, DB>,
        step: &str,
        state: &(impl Serialize + Sync),
    ) -> Result<(), Error> {
        let state = serde_json::to_vec(state).map_err(|error| Error::with_source(ErrorKind::Setup, error))?;
        self.hold(transaction, Some((step, &state))).await
    }

    /// The last checkpoint of earlier attempts at this operation. `None` where there is none, so for every first
    /// attempt, and for stores that keep none.
    ///
    /// # Errors
    /// [`ErrorKind::Unreadable`] for a state that is no `T`: written by another version of the handler.
    pub fn resume<T: DeserializeOwned>(&self) -> Result<Option<Resumed<T>>, Error> {
        let Some(checkpoint) = self.last_checkpoint() else { return Ok(None) };
        let state = serde_json::from_slice(&checkpoint.state)
            .map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
        Ok(Some(Resumed { step: checkpoint.step.clone(), state }))
    }

    async fn hold<DB: LeaseDialect>(
        &self,
        transaction: &mut Transaction<'_, DB>,
        step: Option<(&str, &[u8])>,
    ) -> Result<(), Error> {
        let setup = |what: &str| Error::with_source(ErrorKind::Setup, what);
        let Some(control) = self.control().and_then(|control| control.as_any().downcast_ref::<Control<DB>>()) else {
            return Err(setup("this attempt holds no lease in a database of the transaction's engine"));
        };
        let table = &control.shared.table;
        match table.hold(transaction, &control.owner, control.lease, step).await {
            Ok(true) => Ok(()),
            // Still the owner by the store's own connections: the transaction is elsewhere.
            Ok(false) if matches!(control.standing().await, Ok(Some(Standing::Running))) => {
                Err(setup("the transaction belongs to another database than the store"))
            }
            Ok(false) => {
                emit(Event::LeaseLost);
                Err(ErrorKind::LeaseLost.into())
            }
            Err(error @ sqlx::Error::Configuration(_)) => Err(Error::with_source(ErrorKind::Setup, error)),
            Err(error) if fault::<DB>(&error) == Fault::Aborted => {
                Err(Error::with_source(ErrorKind::TransactionAborted, error))
            }
            Err(error) => Err(DB::Table::error(error)),
        }
    }
}
