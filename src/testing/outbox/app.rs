//! For tests of applications (M42).

use crate::db::outbox::{Acked, From, Queue, Rows};
use crate::db::{InTransaction, OutboxDialect};
use crate::error::Error;
use crate::outbox::{Bucket, Outbox, PendingEvent};

/// How far the assertions look.
const MOST: u32 = 10_000;
/// How many of each bucket [`drain`] takes in one step.
const STEP: u32 = 100;

/// The pending event that `is_it` recognises, the first of several. Events of transactions that are not committed are not
/// pending; see [`enqueued_in`].
///
/// # Panics
/// If there is none among the first 10,000, with a list of those that are there; if the outbox cannot be read.
pub async fn assert_enqueued<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    is_it: impl Fn(&PendingEvent) -> bool,
) -> PendingEvent {
    let pending = pending(outbox).await;
    match pending.iter().find(|pending| is_it(pending)) {
        Some(found) => found.clone(),
        None => panic!("no such event is enqueued, but {}: {pending:#?}", pending.len()),
    }
}

/// That `is_it` recognises no pending event.
///
/// # Panics
/// If it does, among the first 10,000; if the outbox cannot be read.
pub async fn refute_enqueued<DB: OutboxDialect>(outbox: &Outbox<DB>, is_it: impl Fn(&PendingEvent) -> bool) {
    let pending = pending(outbox).await;
    let found: Vec<_> = pending.iter().filter(|pending| is_it(pending)).collect();
    assert!(found.is_empty(), "{} such events are enqueued: {found:#?}", found.len());
}

/// Takes all pending events out, as if they had been published, in the order of their numbers. For tests without a relay.
///
/// # Panics
/// If the outbox cannot be read.
pub async fn drain<DB: OutboxDialect>(outbox: &Outbox<DB>) -> Vec<PendingEvent> {
    let queue = done(outbox.queue());
    let from: Vec<From> = Bucket::all().map(|bucket| From { bucket, after: 0, most: STEP }).collect();
    let mut drained = Vec::new();
    loop {
        let step = asked::<DB, _>(queue.poll(&from).await);
        if step.is_empty() {
            break;
        }
        let acked: Vec<Acked> = step.iter().map(|pending| Acked { place: pending.place(), id: pending.id() }).collect();
        asked::<DB, _>(queue.delete(&acked).await);
        drained.extend(step.into_iter().map(|pending| done(outbox.decoded(pending))));
    }
    drained.sort_by_key(|pending| pending.place().seq);
    drained
}

/// The pending events that this transaction sees, its own included, in the order of their numbers; at most 10,000.
///
/// # Panics
/// If the outbox cannot be read.
pub async fn enqueued_in<DB: OutboxDialect>(outbox: &Outbox<DB>, tx: &mut impl InTransaction<DB>) -> Vec<PendingEvent> {
    let seen = asked::<DB, _>(outbox.rows().pending(tx.connection(), MOST).await);
    let mut seen: Vec<_> = seen.into_iter().map(|pending| done(outbox.decoded(pending))).collect();
    seen.sort_by_key(|pending| pending.place().seq);
    seen
}

async fn pending<DB: OutboxDialect>(outbox: &Outbox<DB>) -> Vec<PendingEvent> {
    let from: Vec<From> =
        Bucket::all().map(|bucket| From { bucket, after: 0, most: MOST / u32::from(Bucket::COUNT) }).collect();
    let mut pending = asked::<DB, _>(done(outbox.queue()).poll(&from).await);
    pending.sort_by_key(|pending| pending.place().seq);
    pending.into_iter().map(|pending| done(outbox.decoded(pending))).collect()
}

fn asked<DB: OutboxDialect, T>(asked: Result<T, sqlx::Error>) -> T {
    done(asked.map_err(DB::Queue::error))
}

fn done<T>(done: Result<T, Error>) -> T {
    match done {
        Ok(done) => done,
        Err(error) => panic!("the outbox cannot be read: {error:?}"),
    }
}
