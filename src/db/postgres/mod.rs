//! Postgres: what the crate's own code must know of it.

pub(crate) mod alone;
pub(crate) mod inbox;
pub(crate) mod inspect;
pub(crate) mod lease;
mod locks;
pub(crate) mod operate;
mod outbox;
pub(crate) mod purge;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod stats;

use sqlx::error::DatabaseError;
use sqlx::postgres::PgTransactionManager;
use sqlx::{Postgres, Transaction};
use sqlx_core::transaction::TransactionManager;

use super::Dialect;
use super::fault::Fault;

pub(crate) use locks::Locks;

/// Commits. A refused COMMIT is waited out: the server reports the error before it lets go of the locks, and the next
/// attempt shall find the key free. sqlx's own `commit` gives the transaction up at the error.
pub(crate) async fn commit(mut transaction: Transaction<'static, Postgres>) -> Result<(), sqlx::Error> {
    // Committed, sqlx counts no transaction on the connection, and dropping this one does nothing.
    let committed = PgTransactionManager::commit(&mut transaction).await;
    if let Err(sqlx::Error::Database(_)) = committed {
        let _ = transaction.rollback().await;
    }
    committed
}

impl Dialect for Postgres {
    const BEGIN: &'static str = sql::BEGIN;

    fn fault(error: &(dyn DatabaseError + 'static)) -> Fault {
        match error.code().as_deref().unwrap_or_default() {
            "40001" | "40P01" | "55P03" => Fault::Conflict,
            "25P02" => Fault::Aborted,
            // Too many connections, shutting down, starting up, terminated by an administrator or by a timeout.
            "53300" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" => Fault::Lost,
            // Disk full, out of memory, a limit of the configuration, a statement's time-out.
            "53000" | "53100" | "53200" | "53400" | "57014" => Fault::Busy,
            // Read-only: a replica, or a fail-over under way. Undefined table, column or schema; no privilege.
            "25006" | "42P01" | "42703" | "3F000" | "42501" => Fault::Setup,
            code if code.starts_with("08") => Fault::Lost,
            _ => Fault::Refused,
        }
    }
}
