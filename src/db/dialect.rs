//! What the rest of the crate must know of an engine.

use sqlx::Database;
use sqlx::error::DatabaseError;

use super::fault::Fault;

/// A database engine that a [`Tx`](crate::Tx) can belong to. Sealed: implemented for the engines of this crate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database engine of `idempotency`",
    note = "use `sqlx::Postgres`, `sqlx::Sqlite` or `sqlx::MySql` with the feature of the same name"
)]
pub trait Dialect: Database + sealed::Sealed {
    /// Opens a transaction that may write.
    #[doc(hidden)]
    const BEGIN: &'static str;

    /// What an error that the database itself reported means for the transaction.
    #[doc(hidden)]
    fn fault(error: &(dyn DatabaseError + 'static)) -> Fault;
}

pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "this is what seals `Dialect`")]
    pub trait Sealed {}

    #[cfg(feature = "postgres")]
    impl Sealed for sqlx::Postgres {}
    #[cfg(feature = "mysql")]
    impl Sealed for sqlx::MySql {}
    #[cfg(feature = "sqlite")]
    impl Sealed for sqlx::Sqlite {}
}
