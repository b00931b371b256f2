//! Stores with one mistake each, on Postgres. The experiment must find them out, or it proves nothing.

mod late;
mod open;
mod tokenless;

use std::str::FromStr;

use idempotency::record::{Answer, Record};
use idempotency::store::ClaimRequest;
use idempotency::{Error, ErrorKind};
use sqlx::PgPool;

pub use late::LateStore;
pub use open::OpenStore;
pub use tokenless::TokenlessStore;

use crate::Failure;
use crate::place::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Looks whether there is an answer, and runs the handler if there is none.
    ClaimWithoutLock,
    /// Holds a key by a lock, and commits what the handler wrote before it has made sure of the key.
    CommitBeforeClaim,
    /// A lease whose end is not compared with its owner.
    SettleWithoutToken,
    /// Looks answers up in a transaction, which it leaves open.
    ReplayWithoutRollback,
}

impl Wrong {
    const ALL: [Self; 4] =
        [Self::ClaimWithoutLock, Self::CommitBeforeClaim, Self::SettleWithoutToken, Self::ReplayWithoutRollback];

    pub fn name(self) -> &'static str {
        match self {
            Self::ClaimWithoutLock => "claim-without-lock",
            Self::CommitBeforeClaim => "commit-before-claim",
            Self::SettleWithoutToken => "settle-without-token",
            Self::ReplayWithoutRollback => "replay-without-rollback",
        }
    }

    /// The store that it pretends to be.
    pub fn place(self) -> Place {
        match self {
            Self::ClaimWithoutLock | Self::CommitBeforeClaim | Self::ReplayWithoutRollback => Place::Postgres,
            Self::SettleWithoutToken => Place::PostgresLease,
        }
    }
}

impl FromStr for Wrong {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|wrong| wrong.name() == text).ok_or_else(|| format!("there is no mistake {text}"))
    }
}

/// The tables of all of them.
pub async fn create(pool: &PgPool) -> Result<(), Failure> {
    sqlx::raw_sql(
        "CREATE TABLE wrong_answers (id_key text PRIMARY KEY, answer bytea NOT NULL);
         CREATE TABLE wrong_locks (id_key text PRIMARY KEY, until timestamptz NOT NULL);
         CREATE TABLE wrong_leases (id_key text PRIMARY KEY, fence bigint NOT NULL, until timestamptz NOT NULL,
            answer bytea)",
    )
    .execute(pool)
    .await?;
    Ok(())
}

fn unavailable(error: sqlx::Error) -> Error {
    Error::with_source(ErrorKind::Unavailable, error)
}

fn record(request: &ClaimRequest, answer: Vec<u8>) -> Result<Record, Error> {
    let answer = Answer::decode(answer.into()).map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
    Ok(Record { fingerprint: *request.fingerprint(), answer })
}
