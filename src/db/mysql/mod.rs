//! MySQL and MariaDB: what the crate's own code must know of them.

pub(crate) mod call;
mod inbox;
pub(crate) mod inspect;
mod lease;
pub(crate) mod lock;
pub(crate) mod operate;
mod outbox;
pub(crate) mod purge;
pub(crate) mod session;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod stats;

use sqlx::MySql;
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use super::Dialect;
use super::fault::Fault;

/// Which way of claiming a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// MariaDB: an upsert that does not wait and returns the row it has met.
    NoWait,
    /// MySQL: a named lock before a plain INSERT. Works on MariaDB too.
    NamedLock,
}

impl Dialect for MySql {
    const BEGIN: &'static str = "BEGIN";

    fn fault(error: &(dyn DatabaseError + 'static)) -> Fault {
        match number(error) {
            // Lock wait timeout, deadlock, record changed since the snapshot, NOWAIT; a certification that failed in
            // a group.
            1205 | 1213 | 1020 | 3572 | 3101 => Fault::Conflict,
            // Too many connections, of this user too; host blocked; shutting down; killed; network; a cluster's node
            // that is not ready; ended for being idle.
            1040 | 1203 | 1226 | 1129 | 1053 | 1927 | 3169 | 1152 | 1158..=1161 | 1047 | 4031 => Fault::Lost,
            // Disk full, out of memory, table full, no thread, lock table full, interrupted, statement's time-out.
            1021 | 1037 | 1038 | 1041 | 1114 | 1135 | 1206 | 1317 | 1969 | 3024 => Fault::Busy,
            // No such table, column or database; no privilege; read-only; statement-based binary log.
            1146 | 1054 | 1049 | 1044 | 1045 | 1142 | 1143 | 1227 | 1290 | 1836 | 1665 => Fault::Setup,
            _ => Fault::Refused,
        }
    }
}

/// The server's error number, 0 for an error of another engine.
fn number(error: &(dyn DatabaseError + 'static)) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}

fn is_number(error: &sqlx::Error, wanted: &[u16]) -> bool {
    matches!(error, sqlx::Error::Database(error) if wanted.contains(&number(error.as_ref())))
}

/// The claim's transaction is not open any more: its savepoint is gone, or the session is in what follows it, where
/// nothing can be written.
pub(crate) fn says_ended(error: &sqlx::Error) -> bool {
    is_number(error, &[1305, 1792])
}

/// The row is there already.
pub(crate) fn says_duplicate(error: &sqlx::Error) -> bool {
    is_number(error, &[1062])
}
