//! Operator calls on a memory store (S8).

use std::time::Duration;

use super::MemoryStore;
use super::table::Change;
use crate::error::Error;
use crate::events::{Event, emit};
use crate::key::Key;
use crate::lookup::Endpoint;
use crate::scope::ScopeId;
use crate::store::{Entry, Kept, KeyStats, Operate, Operated};

impl Operate for MemoryStore {
    async fn find(&self, scope: &ScopeId, key: &Key, endpoint: Option<&Endpoint>) -> Result<Vec<Entry>, Error> {
        Ok(self.shared.table.find((scope, key, endpoint), self.shared.clock.now()))
    }

    async fn list_stuck(&self, older_than: Duration, limit: u32) -> Result<Vec<Entry>, Error> {
        Ok(self.shared.table.stuck(older_than, limit, self.shared.clock.now()))
    }

    async fn release(&self, entry: &Entry) -> Result<Operated, Error> {
        Ok(self.change(entry, Change::Release, Event::OperatorReleased))
    }

    async fn settle_as(&self, entry: &Entry, kept: Kept) -> Result<Operated, Error> {
        Ok(self.change(entry, Change::Settle(Box::new(kept)), Event::OperatorSettled))
    }

    async fn forget(&self, entry: &Entry) -> Result<Operated, Error> {
        Ok(self.change(entry, Change::Forget, Event::OperatorForgot))
    }

    async fn stats(&self, _: u64) -> Result<KeyStats, Error> {
        Ok(self.shared.table.stats(self.shared.clock.now()))
    }
}

impl MemoryStore {
    fn change(&self, entry: &Entry, change: Change, event: Event) -> Operated {
        let operated = self.shared.table.change(entry, change, self.shared.clock.now());
        if operated == Operated::Done {
            emit(event);
        }
        operated
    }
}
