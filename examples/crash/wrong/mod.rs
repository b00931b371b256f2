//! Stores with one mistake each, on Postgres. The experiment must find them out, or it proves nothing.

mod late;
mod leased;
mod open;

use std::str::FromStr;

use idempotency::fingerprint::{Fingerprint, Match};
use idempotency::record::{Answer, Record};
use idempotency::store::{ClaimRequest, Verdict};
use idempotency::{Error, ErrorKind};
use sqlx::PgPool;

pub use late::LateStore;
pub use leased::{LEASE, LeasedStore};
pub use open::OpenStore;

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
    /// A lease that is taken from its owner without waiting for its end.
    TakeOverAtOnce,
    /// Answers whoever knows the key, whatever is asked for.
    AnswerAnybody,
    /// Looks answers up in a transaction, which it leaves open.
    ReplayWithoutRollback,
}

impl Wrong {
    const ALL: [Self; 6] = [
        Self::ClaimWithoutLock,
        Self::CommitBeforeClaim,
        Self::SettleWithoutToken,
        Self::TakeOverAtOnce,
        Self::AnswerAnybody,
        Self::ReplayWithoutRollback,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ClaimWithoutLock => "claim-without-lock",
            Self::CommitBeforeClaim => "commit-before-claim",
            Self::SettleWithoutToken => "settle-without-token",
            Self::TakeOverAtOnce => "take-over-at-once",
            Self::AnswerAnybody => "answer-anybody",
            Self::ReplayWithoutRollback => "replay-without-rollback",
        }
    }

    /// The store that it pretends to be.
    pub fn place(self) -> Place {
        match self {
            Self::ClaimWithoutLock | Self::CommitBeforeClaim | Self::ReplayWithoutRollback => Place::Postgres,
            Self::SettleWithoutToken | Self::TakeOverAtOnce | Self::AnswerAnybody => Place::PostgresLease,
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
        "CREATE TABLE wrong_answers (name text PRIMARY KEY, fingerprint bytea NOT NULL, answer bytea NOT NULL);
         CREATE TABLE wrong_locks (name text PRIMARY KEY, until timestamptz NOT NULL);
         CREATE TABLE wrong_leases (name text PRIMARY KEY, fence bigint NOT NULL, until timestamptz NOT NULL,
            fingerprint bytea NOT NULL, answer bytea)",
    )
    .execute(pool)
    .await?;
    Ok(())
}

fn unavailable(error: sqlx::Error) -> Error {
    Error::with_source(ErrorKind::Unavailable, error)
}

/// Whose key.
fn name(request: &ClaimRequest) -> String {
    format!("{}: {}", request.lookup().scope().as_str(), request.lookup().key().as_str())
}

/// A stored answer, for whoever asks for the same.
fn replay<C>(request: &ClaimRequest, fingerprint: &[u8], answer: Vec<u8>) -> Result<Verdict<C>, Error> {
    let fingerprint = Fingerprint::from_bytes(fingerprint).ok_or(ErrorKind::Unreadable)?;
    if request.compare(&fingerprint) == Match::Different {
        return Ok(Verdict::Mismatch);
    }
    let answer = Answer::decode(answer.into()).map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
    Ok(Verdict::Replay(Record { fingerprint, answer }))
}
