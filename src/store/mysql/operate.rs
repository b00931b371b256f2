//! Operator calls on MySQL and MariaDB (S8).
//!
//! A running key is a row that is not committed: a look at READ UNCOMMITTED shows it, and whoever would change it is told
//! that it is locked.

use std::time::Duration;

use sqlx::MySql;
use tokio::time::sleep;

use super::{MySqlStore, state_of};
use crate::db::fault::{Fault, fault, in_claim};
use crate::db::mysql::operate::{Looked, Operation, Records};
use crate::db::mysql::stats;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::State;
use crate::scope::ScopeId;
use crate::store::stored::StoredEntry;
use crate::store::{Entry, Kept, KeyStats, Operate, Operated};

/// How often to try a row that is locked: somebody who asks for a completed key holds it for a moment, too.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

impl MySqlStore {
    fn records(&self) -> Records<'_> {
        Records { pool: &self.shared.pool, schema: &self.shared.schema, flavor: self.shared.flavor }
    }

    async fn change(&self, entry: &Entry, operation: Operation<'_>, event: Event) -> Result<Operated, Error> {
        // A key without a record is one that somebody runs.
        let Some(token) = entry.token else { return Ok(Operated::InProgress) };
        for _ in 0..TRIES {
            match self.records().operate(&entry.lookup, token, &operation).await {
                Ok(true) => {
                    emit(event);
                    return Ok(Operated::Done);
                }
                Ok(false) => return Ok(Operated::Changed),
                Err(error) if fault::<MySql>(&error) == Fault::Conflict => sleep(PAUSE).await,
                Err(error) => return Err(in_claim::<MySql>(error)),
            }
        }
        Ok(Operated::InProgress)
    }
}

/// Everything that is committed, and what is not as running.
fn entries(looked: Looked) -> Result<Vec<Entry>, Error> {
    let committed = looked.committed.into_iter().map(|stored| {
        let state = i16::try_from(stored.state).map_err(|_| ErrorKind::Unreadable)?;
        stored.entry(state_of(state)?)
    });
    let mut entries = committed.collect::<Result<Vec<_>, Error>>()?;
    for open in looked.open {
        let open = running(&open)?;
        if entries.iter().all(|entry| entry.lookup != open.lookup) {
            entries.push(open);
        }
    }
    Ok(entries)
}

fn running(open: &StoredEntry) -> Result<Entry, Error> {
    let (scope, key, endpoint) = &open.lookup;
    let lookup = LookupKey::from_stored(scope, key, endpoint).ok_or(ErrorKind::Unreadable)?;
    let mut entry = Entry::held(lookup, State::Running);
    entry.age = open.age;
    Ok(entry)
}

impl Operate for MySqlStore {
    /// A key that is running has no record that could be changed: it is found without a token.
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        entries(self.records().find(scope, key, endpoint).await.map_err(in_claim::<MySql>)?)
    }

    /// Orphaned keys of any age, and those that have been running for `older_than`. It reads the whole table.
    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        let looked = self.records().stuck(older_than, limit).await.map_err(in_claim::<MySql>)?;
        let mut stuck = entries(looked)?;
        stuck.sort_by_key(|entry| std::cmp::Reverse(entry.age));
        stuck.truncate(limit.try_into().unwrap_or(usize::MAX));
        Ok(stuck)
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.change(entry, Operation::Release, Event::OperatorReleased).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        let answer = kept.answer.encode();
        let operation = Operation::Settle { answer: &answer, retention: kept.retention };
        self.change(entry, operation, Event::OperatorSettled).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        let operation = if entry.state == State::Completed { Operation::Forget } else { Operation::Release };
        self.change(entry, operation, Event::OperatorForgot).await
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, Error> {
        stats::keys(&self.shared.pool, &self.shared.schema, most).await.map_err(in_claim::<MySql>)
    }
}
