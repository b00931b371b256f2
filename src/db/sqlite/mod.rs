//! SQLite: what the crate's own code must know of it.

pub(crate) mod inbox;
pub(crate) mod inspect;
pub(crate) mod lease;
mod outbox;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod plans;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod stats;
pub(crate) mod wait;

use sqlx::Sqlite;
use sqlx::error::DatabaseError;

use super::Dialect;
use super::fault::{Fault, in_claim};
use crate::error::{Error, ErrorKind};

impl Dialect for Sqlite {
    const BEGIN: &'static str = sql::BEGIN;

    fn fault(error: &(dyn DatabaseError + 'static)) -> Fault {
        // The low byte of an extended result code is its family.
        match code(error).map(|code| code & 0xff) {
            // BUSY with _RECOVERY, _SNAPSHOT and _TIMEOUT; LOCKED with _SHAREDCACHE.
            Some(5 | 6) => Fault::Conflict,
            // ABORT, ABORT_ROLLBACK: the transaction was rolled back under the statement.
            Some(4) => Fault::Aborted,
            // NOMEM, IOERR, FULL: the machine's trouble, which may pass.
            Some(7 | 10 | 13) => Fault::Lost,
            // PERM, READONLY, CANTOPEN, AUTH, NOTADB.
            Some(3 | 8 | 14 | 23 | 26) => Fault::Setup,
            // CONSTRAINT, CORRUPT and the rest. A missing table shares its code with every misspelt statement.
            _ => Fault::Refused,
        }
    }
}

/// The extended result code.
fn code(error: &(dyn DatabaseError + 'static)) -> Option<i32> {
    error.code()?.parse().ok()
}

/// The extended result code of an error of SQLite's.
pub(crate) fn code_of(error: &sqlx::Error) -> Option<i32> {
    match error {
        sqlx::Error::Database(error) => code(error.as_ref()),
        _ => None,
    }
}

/// Whether SQLite understood a statement but not what it names (code 1): a table or a savepoint that is not there,
/// where the statement itself is one of this crate.
pub(crate) fn names_nothing(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if code(error.as_ref()) == Some(1))
}

/// An error of one of this crate's own statements: what it names and SQLite does not find is missing.
pub(crate) fn own_error(error: sqlx::Error) -> Error {
    if names_nothing(&error) {
        return Error::with_source(ErrorKind::Setup, error);
    }
    in_claim::<Sqlite>(error)
}
