//! Operator calls on SQLite (S8).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::SqliteStore;
use super::shared::{LOOK_PATIENCE, Shared, own_error};
use super::turn::Turn;
use super::verdict::stands;
use crate::db::sqlite::statements::{self, ANNOUNCED, COMPLETED, ORPHANED, RUNNING};
use crate::db::sqlite::stats::{Keys, keys};
use crate::db::sqlite::wait::patiently;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::key::Key;
use crate::lookup::Endpoint;
use crate::policy::State;
use crate::scope::ScopeId;
use crate::store::stored::StoredEntry;
use crate::store::{Count, Entry, Kept, KeyStats, Operate, Operated};

/// More announcements than one store has at a time: dead ones among them are found out one by one.
const MOST_UNSETTLED: u32 = 10_000;

enum Change {
    Release,
    Settle(Box<Kept>),
    Forget,
}

impl SqliteStore {
    fn entries(&self, found: Vec<(StoredEntry, Option<Vec<u8>>)>) -> Result<Vec<Entry>, Error> {
        let entry = |(stored, owner): (StoredEntry, Option<Vec<u8>>)| {
            let state = state_of(&self.shared, stored.state, &stored.token, owner.as_deref())?;
            stored.entry(state)
        };
        found.into_iter().map(entry).collect()
    }

    async fn change(&self, entry: &Entry, change: Change, event: Event) -> Result<Operated, Error> {
        let turn = self.shared.turn().await?;
        let (shared, entry) = (Arc::clone(&self.shared), entry.clone());
        // To its end, so that it is done or undone.
        let operated = self.shared.run(async move { apply(&shared, &turn, &entry, change).await }).await??;
        if operated == Operated::Done {
            emit(event);
        }
        Ok(operated)
    }
}

/// In a transaction of its own, which holds the write lock: what it reads is what it changes.
async fn apply(shared: &Shared, turn: &Turn, entry: &Entry, change: Change) -> Result<Operated, Error> {
    let Some(token) = entry.token else { return Ok(Operated::Changed) };
    let mut transaction = shared.begin_on_books(turn).await?;
    let seen = statements::look(&mut transaction, &entry.lookup).await.map_err(own_error)?;
    let Some(seen) = seen.filter(|seen| seen.token == token.as_bytes()) else { return Ok(Operated::Changed) };
    let done = match (state_of(shared, seen.state, &seen.token, seen.owner.as_deref())?, change) {
        (State::Running, _) => return Ok(Operated::InProgress),
        (State::Completed, Change::Release | Change::Settle(_)) => return Ok(Operated::Changed),
        (State::Completed, Change::Forget) if entry.state != State::Completed => return Ok(Operated::Changed),
        (_, Change::Release | Change::Forget) => {
            statements::forget(&mut transaction, &entry.lookup, token, seen.state).await
        }
        (_, Change::Settle(kept)) => {
            let answer = kept.answer.encode();
            statements::settle(&mut transaction, &entry.lookup, token, seen.state, kept.retention, &answer).await
        }
    };
    if !done.map_err(own_error)? {
        return Ok(Operated::Changed);
    }
    transaction.commit().await.map_err(own_error)?;
    Ok(Operated::Done)
}

fn state_of(shared: &Shared, column: i64, token: &[u8], owner: Option<&[u8]>) -> Result<State, Error> {
    Ok(match column {
        ANNOUNCED if stands(shared, token, owner) => State::Running,
        ANNOUNCED => State::Lapsed,
        COMPLETED => State::Completed,
        // A running row that another transaction can see was committed by its own handler (H29).
        RUNNING | ORPHANED => State::Orphaned,
        _ => return Err(ErrorKind::Unreadable.into()),
    })
}

impl Operate for SqliteStore {
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        let until = Instant::now() + LOOK_PATIENCE;
        let shared = &self.shared;
        let found = patiently!(until, statements::find(&mut *shared.desk(until).await?, (scope, key, endpoint)).await);
        self.entries(found.map_err(own_error)?)
    }

    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        let until = Instant::now() + LOOK_PATIENCE;
        let shared = &self.shared;
        let found = patiently!(until, statements::unsettled(&mut *shared.desk(until).await?, MOST_UNSETTLED).await);
        let mut stuck = self.entries(found.map_err(own_error)?)?;
        stuck.retain(|entry| entry.state != State::Running || entry.age >= older_than);
        stuck.truncate(limit.try_into().unwrap_or(usize::MAX));
        Ok(stuck)
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.change(entry, Change::Release, Event::OperatorReleased).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        self.change(entry, Change::Settle(Box::new(kept)), Event::OperatorSettled).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        self.change(entry, Change::Forget, Event::OperatorForgot).await
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, Error> {
        let until = Instant::now() + LOOK_PATIENCE;
        let shared = &self.shared;
        let seen = patiently!(until, keys(&mut *shared.desk(until).await?, most).await);
        let Keys { mut stats, announced } = seen.map_err(own_error)?;
        let whole = matches!(stats.records, Count::Exactly(_));
        let stand = announced.iter().filter(|(token, owner)| stands(shared, token, owner.as_deref())).count();
        let counted = |number: usize| whole.then_some(Count::Exactly(u64::try_from(number).unwrap_or(u64::MAX)));
        stats.running = counted(stand);
        stats.lapsed = counted(announced.len() - stand);
        Ok(stats)
    }
}
