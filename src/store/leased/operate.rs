//! Operator calls on leases (S8).

use std::time::Duration;

use super::{LeaseStore, state, within};
use crate::db::LeaseDialect;
use crate::db::lease::{Found, Operation, Owner, Search, Stored, Table};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::State;
use crate::record::Answer;
use crate::scope::ScopeId;
use crate::store::{Entry, Fence, Kept, KeyStats, Operate, Operated, Token};

impl<DB: LeaseDialect> Operate for LeaseStore<DB> {
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        let (scope, key, endpoint) = (scope.as_str(), key.as_str(), endpoint.map(Endpoint::as_str));
        self.search(Search::Key { scope, key, endpoint }).await
    }

    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        self.search(Search::Stuck { older_than, limit }).await
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.operate(entry, Operation::Release, Event::OperatorReleased).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        let answer = kept.answer.encode();
        let stored = Stored { answer: &answer, retention: kept.retention };
        self.operate(entry, Operation::Settle(stored), Event::OperatorSettled).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        let completed = entry.state == State::Completed;
        self.operate(entry, Operation::Forget { completed }, Event::OperatorForgot).await
    }

    /// It has no limit of time.
    async fn stats(&self, most: u64) -> Result<KeyStats, Error> {
        self.shared.table.stats(most).await.map_err(DB::Table::error)
    }
}

impl<DB: LeaseDialect> LeaseStore<DB> {
    async fn search(&self, search: Search<'_>) -> Result<Vec<Entry>, Error> {
        let found = self.shared.table.search(search);
        let found = within(self.limit, async { found.await.map_err(DB::Table::error) }).await?;
        found.into_iter().map(entry).collect()
    }

    async fn operate(&self, entry: &Entry, operation: Operation<'_>, event: Event) -> Result<Operated, Error> {
        // Only rows have a token and a fence.
        let (Some(token), Some(Fence(fence))) = (entry.token, entry.fence) else { return Ok(Operated::Changed) };
        let Ok(fence) = i64::try_from(fence) else { return Ok(Operated::Changed) };
        let is_for_completed = matches!(operation, Operation::Forget { completed: true });
        let owner = Owner { lookup: entry.lookup.clone(), token };
        let done = self.shared.table.operate(&owner, fence, operation);
        if within(self.limit, async { done.await.map_err(DB::Table::error) }).await? {
            emit(event);
            return Ok(Operated::Done);
        }
        // Why not?
        let (scope, key, endpoint) = (entry.lookup.scope(), entry.lookup.key(), entry.lookup.endpoint());
        let now = self.find(scope, key, Some(endpoint)).await?;
        let same = now.iter().find(|now| now.token == entry.token && now.fence == entry.fence);
        Ok(match same.map(|now| now.state) {
            None => Operated::Changed,
            Some(State::Completed) if !is_for_completed => Operated::Changed,
            // It runs, or a transaction that guards has it.
            Some(_) => Operated::InProgress,
        })
    }
}

fn entry(found: Found) -> Result<Entry, Error> {
    let [scope, key, endpoint] = &found.lookup;
    let lookup = LookupKey::from_stored(scope, key, endpoint).ok_or(ErrorKind::Unreadable)?;
    let token = found.token.try_into().map_err(|_| ErrorKind::Unreadable)?;
    let state = state(found.completed, found.lease_left <= 0, found.held);
    let mut entry = Entry::new(lookup, state, Token::from_bytes(token));
    entry.attempt = found.attempt.unsigned_abs();
    entry.fence = Some(Fence(found.fence.unsigned_abs()));
    entry.age = microseconds(found.age);
    entry.expires_in = microseconds(found.expires_in);
    entry.lease_left = (state == State::Running).then(|| microseconds(found.lease_left));
    entry.step = found.step;
    if let Some(answer) = found.answer {
        let answer = Answer::decode(answer).map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
        entry.status = Some(answer.status);
    }
    Ok(entry)
}

fn microseconds(count: i64) -> Duration {
    Duration::from_micros(count.max(0).unsigned_abs())
}
