//! What may stand where "a transaction of the caller's" is asked for.

use sqlx::Transaction;

use super::{Dialect, Tx};

/// An open transaction of the caller's: sqlx's `Transaction`, the [`Tx`] of a guarded request, or the
/// [`InboxTx`](crate::inbox::InboxTx) of a message.
///
/// Sealed, and never a bare connection: what is written through one commits statement by statement, so the mark of a
/// message and its effects could come apart (case B16).
///
/// ```compile_fail
/// # #[cfg(feature = "sqlite")]
/// fn wants_a_transaction(_: &mut impl idempotency::InTransaction<sqlx::Sqlite>) {}
/// # #[cfg(feature = "sqlite")]
/// fn refuse(connection: &mut sqlx::SqliteConnection) {
///     wants_a_transaction(connection);
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an open transaction of `{DB}`",
    note = "pass `&mut` of a `sqlx::Transaction` or of an `idempotency::Tx`; a connection without a transaction would \
            commit each statement alone"
)]
pub trait InTransaction<DB: Dialect>: open::Open<DB> + Send {}

impl<DB: Dialect, T: open::Open<DB> + Send> InTransaction<DB> for T {}

pub(crate) mod open {
    use super::Dialect;

    /// What seals `InTransaction`.
    #[expect(unnameable_types, reason = "this is what seals `InTransaction`")]
    pub trait Open<DB: Dialect> {
        /// The connection inside the transaction.
        fn connection(&mut self) -> &mut DB::Connection;

        /// Whether it surely was begun as one that may write (SQLite's BEGIN IMMEDIATE).
        fn is_writer(&self) -> bool {
            false
        }
    }
}

impl<DB: Dialect> open::Open<DB> for Transaction<'_, DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

impl<DB: Dialect> open::Open<DB> for Tx<DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self
    }

    fn is_writer(&self) -> bool {
        true
    }
}
