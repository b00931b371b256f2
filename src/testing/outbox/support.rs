//! Events, members and steps that the properties share.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use sqlx::Transaction;
use uuid::Uuid;

use super::Harness;
use crate::db::OutboxDialect;
use crate::db::outbox::{Attempt, Beat, Fence, From, Member, Queue, Taken};
use crate::outbox::{Bucket, Event, Outbox, PendingEvent};

/// Long enough for a busy machine.
pub(super) const LEASE: Duration = Duration::from_secs(60);

pub(super) fn event(key: &str) -> Event {
    Event::new("kit", "kit.topic", "kit.happened", "/kit").key(key).payload("text/plain", "payload")
}

/// The value, or a panic with the error.
pub(super) async fn done<T, E: Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    match call.await {
        Ok(done) => done,
        Err(error) => panic!("must not fail: {error:?}"),
    }
}

pub(super) async fn commit<DB: OutboxDialect>(tx: Transaction<'static, DB>) {
    done(tx.commit()).await;
}

pub(super) async fn roll_back<DB: OutboxDialect>(tx: Transaction<'static, DB>) {
    done(tx.rollback()).await;
}

/// Enqueues in a transaction of its own.
pub(super) async fn enqueued<H: Harness>(harness: &H, outbox: &Outbox<H::DB>, event: &Event) -> Uuid {
    let mut tx = harness.begin().await;
    let id = done(outbox.enqueue(&mut tx, event)).await;
    commit(tx).await;
    id
}

pub(super) fn queue<DB: OutboxDialect>(outbox: &Outbox<DB>) -> &DB::Queue {
    match outbox.queue() {
        Ok(queue) => queue,
        Err(error) => panic!("has a pool: {error:?}"),
    }
}

/// Every pending event, at most 1,000 of each bucket.
pub(super) async fn pending<DB: OutboxDialect>(outbox: &Outbox<DB>) -> Vec<PendingEvent> {
    let from: Vec<From> = Bucket::all().map(|bucket| From { bucket, after: 0, most: 1_000 }).collect();
    done(queue(outbox).poll(&from)).await
}

/// The only one that is pending.
pub(super) async fn only<DB: OutboxDialect>(outbox: &Outbox<DB>) -> PendingEvent {
    let mut pending = pending(outbox).await;
    assert_eq!(pending.len(), 1, "one event is pending");
    pending.remove(0)
}

pub(super) fn payloads(pending: &[PendingEvent]) -> Vec<String> {
    let mut in_order: Vec<&PendingEvent> = pending.iter().collect();
    in_order.sort_by_key(|pending| pending.place().seq);
    in_order.iter().map(|pending| String::from_utf8_lossy(pending.event().payload_ref()).into_owned()).collect()
}

pub(super) fn member(name: &str) -> Member {
    Member { name: name.to_owned(), token: Uuid::new_v4() }
}

/// A member that owns every bucket, and its rights.
pub(super) struct Owner {
    pub(super) member: Member,
    pub(super) fences: BTreeMap<Bucket, Fence>,
}

impl Owner {
    pub(super) async fn of_all<DB: OutboxDialect>(outbox: &Outbox<DB>, name: &str) -> Self {
        let member = member(name);
        assert!(matches!(done(queue(outbox).join(&member, LEASE)).await, Beat::Member { .. }));
        let taken = done(queue(outbox).take(&member, u32::MAX)).await;
        assert_eq!(taken.len(), usize::from(Bucket::COUNT));
        Self { member, fences: by_bucket(&taken) }
    }

    pub(super) fn fence(&self, event: &PendingEvent) -> &Fence {
        &self.fences[&event.bucket()]
    }
}

pub(super) fn by_bucket(taken: &[Taken]) -> BTreeMap<Bucket, Fence> {
    taken.iter().map(|taken| (taken.fence.bucket, taken.fence)).collect()
}

/// A failure that counts.
pub(super) fn failed(event: &PendingEvent) -> Attempt<'_> {
    Attempt { event, count: 1, retry_in: Duration::from_secs(3600), blocked: false, error: "refused" }
}
