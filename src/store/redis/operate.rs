//! What operators do with a key on Redis (S8).

use std::time::Duration;

use uuid::Uuid;

use super::claim::{LEAST_KEPT, REMEMBERED};
use super::reply::int;
use super::scripts::{Step, micros};
use super::{RedisStore, entry};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::key::Key;
use crate::lookup::{Endpoint, LookupKey};
use crate::policy::State;
use crate::scope::ScopeId;
use crate::store::{Entry, Kept, KeyStats, Operate, Operated};

/// Every record has a name made of scope, key and endpoint, so [`Operate::find`] must be told the endpoint.
/// [`Operate::list_stuck`] walks all names of each server in small steps (`SCAN`), at most a million of each: on a
/// larger database it may miss some. It is for a person who looks, not for a timer.
impl Operate for RedisStore {
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        let endpoint = endpoint
            .ok_or_else(|| Error::with_source(ErrorKind::Setup, "on Redis a key is found with its endpoint only"))?;
        let name = self.key(&LookupKey::new(scope.clone(), key.clone(), endpoint.clone()));
        let fields: Vec<&[u8]> = entry::FIELDS.iter().chain([&entry::STATUS]).map(|field| field.as_bytes()).collect();
        let (answer, _) = self.link.run(Step::Look, &name, &fields).await?;
        Ok(entry::looked(answer)?.into_iter().collect())
    }

    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        self.scan(older_than, usize::try_from(limit).unwrap_or(usize::MAX)).await
    }

    async fn stats(&self, most: u64) -> Result<KeyStats, Error> {
        self.count(most).await
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        self.operate(entry, Event::OperatorReleased, "release", &[]).await
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        let (retention, least) = (micros(kept.retention), micros(LEAST_KEPT));
        let (status, answer) = (kept.answer.status.as_u16().to_string(), kept.answer.encode());
        let args = [retention.as_bytes(), least.as_bytes(), status.as_bytes(), &answer];
        self.operate(entry, Event::OperatorSettled, "settle", &args).await
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        let seen: &[u8] = if entry.state == State::Completed { b"c" } else { b"r" };
        self.operate(entry, Event::OperatorForgot, "forget", &[REMEMBERED.as_bytes(), seen]).await
    }
}

impl RedisStore {
    async fn operate(&self, entry: &Entry, event: Event, action: &str, more: &[&[u8]]) -> Result<Operated, Error> {
        let Some(token) = entry.token else { return Ok(Operated::Changed) };
        // Whoever stopped holds the old one and has no say any more.
        let next = Uuid::new_v4();
        let mut args: Vec<&[u8]> = vec![action.as_bytes(), token.as_bytes(), next.as_bytes()];
        args.extend(more);
        let name = self.key(&entry.lookup);
        let (answer, open) = self.link.run(Step::Operate, &name, &args).await?;
        let done = match int(Some(&answer))? {
            0 => Operated::Changed,
            1 => Operated::Done,
            2 => Operated::InProgress,
            _ => return Err(ErrorKind::Unreadable.into()),
        };
        if done == Operated::Done {
            emit(event);
            if let Some(replicas) = self.replicas {
                replicas.confirm(&self.link, open, &name).await?;
            }
        }
        Ok(done)
    }
}
