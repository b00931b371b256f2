//! What can go wrong between the layer and a store.

use std::error::Error as StdError;
use std::fmt;

/// Why a store could not do what it was asked. Opaque: [`Error::kind`] says what it means, `source()` what caused it.
pub struct Error {
    kind: ErrorKind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What an [`Error`] means for the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached, or did not answer in time. Nothing was claimed or recorded.
    Unavailable,
    /// The store holds as much as it may (memory store, a Redis without free memory). Nothing was claimed.
    Full,
    /// The database gave this transaction up in favour of another one (40001, 40P01; MySQL 1205, 1213; a busy SQLite). Nothing was kept.
    Conflict,
    /// The connection was lost while the transaction committed and its record could not be found afterwards: the work
    /// may or may not be done. The same key learns the truth.
    NotRecorded,
    /// The database refused the commit, for example by a deferred constraint. Nothing was kept.
    CommitRefused,
    /// The handler swallowed a database error and left the transaction aborted. Nothing was kept.
    TransactionAborted,
    /// The claim's transaction was ended before the claim was settled. What was written cannot be told.
    TransactionEnded,
    /// The database has ended the caller's transaction: a deadlock, a snapshot that is too old, a lost connection. Nothing
    /// was kept, and nothing more can be written through it.
    TransactionLost,
    /// A transaction of SQLite that was not begun by `BEGIN IMMEDIATE`: it may find that it cannot write.
    NotAWriter,
    /// The handler returned while its [`Tx`](crate::Tx) was still out. It is rolled back when it is dropped.
    HeldTransaction,
    /// The lease was lost to another attempt; on SQLite, the announcement of the claim. Nothing was recorded.
    LeaseLost,
    /// A stored record cannot be read: damaged, or written by a newer version.
    Unreadable,
    /// The store is not set up as it must be: a missing table, a read-only replica, a version too old.
    Setup,
}

impl ErrorKind {
    const fn message(self) -> &'static str {
        match self {
            Self::Unavailable => "the store cannot be reached",
            Self::Full => "the store is full",
            Self::Conflict => "the database gave the transaction up in favour of another one",
            Self::NotRecorded => "the connection was lost in COMMIT; the outcome is unknown",
            Self::CommitRefused => "the database refused the commit",
            Self::TransactionAborted => "the transaction was left aborted by an error that the handler swallowed",
            Self::TransactionEnded => "the claim's transaction was ended before the claim was settled",
            Self::TransactionLost => "the database has ended the transaction",
            Self::NotAWriter => "the transaction was not begun by BEGIN IMMEDIATE",
            Self::HeldTransaction => "the transaction was still held when the handler returned",
            Self::LeaseLost => "the lease was lost to another attempt",
            Self::Unreadable => "a stored record cannot be read",
            Self::Setup => "the store is not set up",
        }
    }
}

impl Error {
    /// An error without a cause, for stores of your own.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// An error with its cause, for stores of your own.
    pub fn with_source(kind: ErrorKind, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// What it means for the operation.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed a little later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Unavailable
                | ErrorKind::Full
                | ErrorKind::Conflict
                | ErrorKind::NotRecorded
                | ErrorKind::TransactionLost
        )
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The source's message only: its Debug may show rows of the database (H9).
        let source = self.source.as_ref().map(ToString::to_string);
        f.debug_struct("Error").field("kind", &self.kind).field("source", &source).finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
