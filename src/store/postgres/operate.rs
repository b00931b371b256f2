//! Operator calls on Postgres (S8).
//!
//! A running key is a row that only its own transaction sees. What others see is the session that holds its lock.

use std::time::Duration;

use sqlx::{Postgres, Transaction};
use tokio::time::sleep;

use super::{PostgresStore, state_of};
use crate::db::begin::{begin, roll_back};
use crate::db::fault::in_claim;
use crate::db::postgres::operate::{self as statements, Changed, Target};
use crate::db::postgres::statements::{COMPLETED, ORPHANED};
use crate::db::postgres::{Locks, sql, stats};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::State;
use crate::scope::ScopeId;
use crate::store::stored::StoredEntry;
use crate::store::{Entry, Holder, Kept, KeyStats, Operate, Operated};

/// A committed running row was committed by its own handler: an orphan (H29).
const RUNNING: i16 = 0;

/// How often to try a key that is held: somebody who asks for a record holds it for a moment, too.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

impl PostgresStore {
    /// The sessions that have held claims for `open_for` or longer, the oldest first, at most `limit`: handlers that are
    /// slow, or hang. Which keys they hold cannot be told from outside; [`Operate::find`] tells it for a key at hand.
    ///
    /// # Errors
    /// As for a claim.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn holders(&self, open_for: Duration, limit: u32) -> Result<Vec<Holder>, Error> {
        let mut transaction = self.begin_operation().await?;
        let holders = statements::holders(&mut transaction, &self.shared.schema, open_for, limit).await;
        holders.map_err(in_claim::<Postgres>)
    }

    /// Ends the session of `holder`, so that its transaction is undone and its keys are free. Returns whether there was
    /// such a session; one that has ended that transaction meanwhile is left alone, also where it runs the next request.
    ///
    /// # Errors
    /// As for a claim; [`ErrorKind::Setup`] where the role may not end sessions (`pg_signal_backend`).
    ///
    /// # Cancel safety
    /// Dropped, the session is ended or not. Where it is, the event may be missing from logs and counters.
    pub async fn terminate(&self, holder: &Holder) -> Result<bool, Error> {
        let Ok(pid) = i32::try_from(holder.pid) else { return Ok(false) };
        let mut transaction = self.begin_operation().await?;
        let ended = statements::terminate(&mut transaction, &self.shared.schema, (pid, holder.begun)).await;
        let ended = ended.map_err(in_claim::<Postgres>)?;
        if ended {
            emit(Event::OperatorTerminated);
        }
        Ok(ended)
    }

    async fn begin_operation(&self) -> Result<Transaction<'static, Postgres>, Error> {
        begin(&self.shared.pool, sql::BEGIN).await.map_err(in_claim::<Postgres>)
    }

    fn key_lock(&self, lookup: &LookupKey) -> i64 {
        Locks::of_key(self.shared.schema.as_str(), lookup.digest())
    }

    async fn change(
        &self,
        entry: &Entry,
        states: &[i16],
        kept: Option<&Kept>,
        event: Event,
    ) -> Result<Operated, Error> {
        // A key without a record is one that somebody runs.
        let Some(token) = entry.token else { return Ok(Operated::InProgress) };
        let target = Target { lookup: &entry.lookup, lock: self.key_lock(&entry.lookup), token, states };
        let kept = kept.map(|kept| (kept.retention, kept.answer.encode()));
        for _ in 0..TRIES {
            let mut transaction = self.begin_operation().await?;
            let schema = &self.shared.schema;
            let changed = match &kept {
                None => statements::forget(&mut transaction, schema, &target).await,
                Some((retention, answer)) => {
                    statements::settle_as(&mut transaction, schema, &target, *retention, answer).await
                }
            };
            let changed = changed.map_err(in_claim::<Postgres>)?;
            if matches!(changed, Changed::Yes) {
                transaction.commit().await.map_err(in_claim::<Postgres>)?;
                emit(event);
                return Ok(Operated::Done);
            }
            // It may hold K, and the next request shall find the key as it was.
            let _ = roll_back(transaction).await;
            if matches!(changed, Changed::No) {
                return Ok(Operated::Changed);
            }
            sleep(PAUSE).await;
        }
        Ok(Operated::InProgress)
    }
}

fn entry(stored: StoredEntry) -> Result<Entry, Error> {
    let state = i16::try_from(stored.state).map_err(|_| ErrorKind::Unreadable)?;
    stored.entry(state_of(state)?)
}

impl Operate for PostgresStore {
    /// A key that is running has no record that could be read: it is found where the endpoint is named, with the session
    /// that holds it.
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        let mut transaction = self.begin_operation().await?;
        let found = statements::find(&mut transaction, &self.shared.schema, (scope, key, endpoint)).await;
        let found = found.map_err(in_claim::<Postgres>)?;
        let Some(endpoint) = endpoint.filter(|_| found.is_empty()) else {
            return found.into_iter().map(entry).collect();
        };
        let lookup = LookupKey::new(scope.clone(), key.clone(), endpoint.clone());
        let holder = statements::holder(&mut transaction, self.key_lock(&lookup)).await;
        Ok(holder.map_err(in_claim::<Postgres>)?.map(|holder| held(lookup, holder)).into_iter().collect())
    }

    /// Orphaned keys. Running ones are sessions: see [`PostgresStore::holders`].
    async fn list_stuck(&self, _: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        let mut transaction = self.begin_operation().await?;
        let found = statements::stuck(&mut transaction, &self.shared.schema, limit).await;
        found.map_err(in_claim::<Postgres>)?.into_iter().map(entry).collect()
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.change(entry, &[RUNNING, ORPHANED], None, Event::OperatorReleased).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        self.change(entry, &[RUNNING, ORPHANED], Some(&kept), Event::OperatorSettled).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        let states: &[i16] = if entry.state == State::Completed { &[COMPLETED] } else { &[RUNNING, ORPHANED] };
        self.change(entry, states, None, Event::OperatorForgot).await
    }

    /// Running keys are counted as sessions.
    async fn stats(&self, most: u64) -> Result<KeyStats, Error> {
        let mut transaction = self.begin_operation().await?;
        stats::keys(&mut transaction, &self.shared.schema, most).await.map_err(in_claim::<Postgres>)
    }
}

fn held(lookup: LookupKey, holder: Holder) -> Entry {
    let mut entry = Entry::held(lookup, State::Running);
    entry.age = holder.open_for;
    entry.holder = Some(holder);
    entry
}
