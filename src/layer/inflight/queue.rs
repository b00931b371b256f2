//! Those who wait for an answer instead of being told 409 (H20).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Digest, Inflight, Ticket};
use crate::record::Record;

/// How many may wait; beyond that they are told 409.
#[derive(Clone, Copy, Debug)]
pub(in crate::layer) struct Caps {
    pub(in crate::layer) per_key: usize,
    pub(in crate::layer) in_all: usize,
}

/// What a wait may come to.
pub(in crate::layer) enum Turn {
    /// The operation has its answer.
    Settled(Arc<Record>),
    /// It has come to nothing, and whoever has waited longest asks next.
    Baton(Ticket),
}

/// What becomes of the wish to wait.
pub(in crate::layer) enum Queued {
    Waiting(Waiting),
    Full,
    /// There is nothing to wait for any more: meet again.
    Gone,
}

/// A place in a queue. Dropped, it is given up, with whatever has been sent to it: a baton is passed on.
pub(in crate::layer) struct Waiting {
    turn: oneshot::Receiver<Turn>,
    table: Arc<Inflight>,
}

impl Inflight {
    /// Takes a place behind all who wait for this key.
    pub(in crate::layer) fn queue(self: &Arc<Self>, digest: &Digest, caps: Caps) -> Queued {
        let rows = &mut *self.lock();
        let Some(row) = rows.by_key.get_mut(digest) else { return Queued::Gone };
        if row.queue.len() >= caps.per_key {
            row.queue.retain(|sender| !sender.is_closed());
        }
        if row.queue.len() >= caps.per_key || rows.queued >= caps.in_all {
            return Queued::Full;
        }
        let (sender, turn) = oneshot::channel();
        row.queue.push_back(sender);
        rows.queued += 1;
        Queued::Waiting(Waiting { turn, table: Arc::clone(self) })
    }

    /// How many requests wait.
    pub(in crate::layer) fn queued(&self) -> usize {
        self.lock().queued
    }
}

impl Waiting {
    /// What it comes to. `None`: meet again.
    pub(in crate::layer) async fn turn(&mut self) -> Option<Turn> {
        (&mut self.turn).await.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Closed first, so that nothing can be sent to a place that is not counted.
        self.turn.close();
        self.table.lock().queued -= 1;
    }
}
