//! What a database error means for a transaction: by code, never by message text (case B10).

use super::Dialect;
use crate::error::{Error, ErrorKind};

/// The kinds of failure that call for different answers.
#[expect(unnameable_types, reason = "part of the sealed trait `Dialect`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Serialization failure, deadlock, busy: the same work may succeed at once.
    Conflict,
    /// The transaction is aborted by an earlier error.
    Aborted,
    /// The server ended the session, or does not accept one now.
    Lost,
    /// The server has no room or no time now; the connection stands.
    Busy,
    /// The server understood and refused.
    Refused,
    /// The table is missing or cannot be written.
    Setup,
}

/// What `error` means, connection failures included.
pub(crate) fn fault<DB: Dialect>(error: &sqlx::Error) -> Fault {
    match error {
        sqlx::Error::Database(error) => DB::fault(error.as_ref()),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Fault::Lost,
        _ => Fault::Refused,
    }
}

/// An error outside COMMIT: nothing was kept.
pub(crate) fn before_commit<DB: Dialect>(error: sqlx::Error) -> Error {
    let kind = match fault::<DB>(&error) {
        Fault::Conflict => ErrorKind::Conflict,
        Fault::Aborted => ErrorKind::TransactionAborted,
        Fault::Lost | Fault::Busy => ErrorKind::Unavailable,
        Fault::Refused => ErrorKind::CommitRefused,
        Fault::Setup => ErrorKind::Setup,
    };
    Error::with_source(kind, error)
}

/// An error while a key is asked for: whatever the database refuses here is a matter of set-up or of time, never of
/// the request.
pub(crate) fn in_claim<DB: Dialect>(error: sqlx::Error) -> Error {
    let kind = match fault::<DB>(&error) {
        Fault::Conflict => ErrorKind::Conflict,
        Fault::Setup => ErrorKind::Setup,
        Fault::Aborted | Fault::Lost | Fault::Busy | Fault::Refused => ErrorKind::Unavailable,
    };
    Error::with_source(kind, error)
}

/// Whether a handler's own statement failed only because the database gave its transaction up in favour of another
/// one, so that the same request may succeed at once (H34). Answer such a failure with
/// [`RetryLater`](crate::RetryLater).
#[must_use]
pub fn is_retryable<DB: Dialect>(error: &sqlx::Error) -> bool {
    fault::<DB>(error) == Fault::Conflict
}
