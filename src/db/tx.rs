//! The claim's transaction in the handler's hands (H28).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use http::Extensions;
use sqlx::Transaction;

use super::Dialect;
use super::slot::Slot;
use crate::error::Error;

/// The transaction of the claim: what is written through it is committed together with the stored answer, or not at
/// all.
///
/// Taken from the request by the axum extractor of the same name (feature `axum`) or by [`Tx::take`], and given back
/// when it is dropped. It dereferences to the connection, so `&mut **tx` (or `&mut *tx`) is an executor.
///
/// - Drop it before you return: a `Tx` that outlives its handler is 500 `held-transaction`, rolled back.
/// - A middleware below the layer drops its `Tx` before it calls the handler.
/// - Never COMMIT, ROLLBACK or run DDL that commits through it: that is 500 `transaction-ended`, and the key is closed.
/// - Do not ask the pool for a second connection while you hold it: with a small pool that is a deadlock, and on
///   SQLite a write through the pool waits for this very transaction.
///
/// For guarded requests without a key it is a plain transaction, committed on 2xx and 3xx (H2).
pub struct Tx<DB: Dialect> {
    /// Present until drop.
    transaction: Option<Transaction<'static, DB>>,
    /// Outlives the claim where the `Tx` does, so that the slot ends what comes back late.
    slot: Arc<Slot<DB>>,
}

/// What the layer puts into a request's extensions: no more than a way to the claim, which may end first.
pub(crate) struct TxSource<DB: Dialect>(Weak<Slot<DB>>);

impl<DB: Dialect> TxSource<DB> {
    pub(crate) fn new(slot: &Arc<Slot<DB>>) -> Self {
        Self(Arc::downgrade(slot))
    }
}

impl<DB: Dialect> Clone for TxSource<DB> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<DB: Dialect> Tx<DB> {
    /// Takes the transaction that the layer lends to this request.
    ///
    /// # Errors
    /// See [`TxError`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the transaction takeable.
    pub async fn take(extensions: &Extensions) -> Result<Self, TxError> {
        let source = extensions.get::<TxSource<DB>>().ok_or(TxError::Absent)?;
        let slot = source.0.upgrade().ok_or(TxError::Ended)?;
        Self::lent_by(&slot).await
    }

    /// The transaction of a slot.
    pub(crate) async fn lent_by(slot: &Arc<Slot<DB>>) -> Result<Self, TxError> {
        let transaction = slot.take().await?;
        Ok(Self { transaction: Some(transaction), slot: Arc::clone(slot) })
    }

    /// Whether the layer lends a transaction of this engine to this request.
    #[must_use]
    pub fn is_lent(extensions: &Extensions) -> bool {
        extensions.get::<TxSource<DB>>().is_some()
    }

    /// As sqlx's transaction, for nested transactions: `tx.as_transaction().begin()` is a savepoint.
    ///
    /// A nested transaction that is dropped is rolled back alone. One that is forgotten (`mem::forget`), or whose
    /// `begin` is dropped half-way, ends the whole transaction (H29).
    pub fn as_transaction(&mut self) -> &mut Transaction<'static, DB> {
        match &mut self.transaction {
            Some(transaction) => transaction,
            None => unreachable!("a Tx holds its transaction until it is dropped"),
        }
    }
}

impl<DB: Dialect> Deref for Tx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.transaction {
            Some(transaction) => transaction,
            None => unreachable!("a Tx holds its transaction until it is dropped"),
        }
    }
}

impl<DB: Dialect> DerefMut for Tx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.as_transaction()
    }
}

impl<DB: Dialect> Drop for Tx<DB> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            self.slot.put_back(transaction);
        }
    }
}

impl<DB: Dialect> fmt::Debug for Tx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx(..)")
    }
}

/// Why a handler cannot have a [`Tx`].
///
/// As the rejection of the axum extractor it is 503 with `Retry-After` where the transaction could not be begun and a
/// repetition may help (see [`RetryLater`](crate::RetryLater)), else 500 `no-transaction`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// No layer over a store of this engine has guarded this request: wrong engine, unguarded method, a lease store,
    /// or no layer at all.
    #[error("no idempotency layer lends a transaction of this database to this request")]
    Absent,
    /// Another extractor or middleware of this request holds it.
    #[error("the transaction of this request is already taken; drop the first Tx before taking a second")]
    AlreadyTaken,
    /// The request's claim is over, or its transaction has been ended.
    #[error("the transaction of this request has ended")]
    Ended,
    /// The transaction could not be begun.
    #[error("the transaction could not be begun")]
    Begin(#[source] Error),
}
