//! Those who wait for an answer instead of being told 409 (H20).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Entry, Inflight, Ticket};
use crate::digest_map::Digest;
use crate::record::Record;
use crate::series;

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
    // Goes first, so that nothing can be sent to a place that is not counted.
    turn: oneshot::Receiver<Turn>,
    seat: Seat,
}

/// One of those that may wait (`Caps::in_all`), until it is dropped. Whoever has waited keeps it while it asks.
pub(in crate::layer) struct Seat(Arc<Inflight>, #[allow(dead_code, reason = "counts while it lives")] series::Waiting);

impl Inflight {
    /// Takes a place behind all who wait for this key.
    pub(in crate::layer) fn queue(self: &Arc<Self>, digest: &Digest, caps: Caps) -> Queued {
        let rows = &mut *self.lock();
        let Some(row) = rows.by_key.get_mut(digest) else { return Queued::Gone };
        // The one that asks for all waits as well.
        let others = usize::from(matches!(row.entry, Entry::Elsewhere(_)));
        // Whoever has given up makes room, before the queue grows.
        if row.queue.len() == row.queue.capacity() || row.queue.len() + others >= caps.per_key {
            row.queue.retain(|sender| !sender.is_closed());
        }
        if row.queue.len() + others >= caps.per_key || rows.waiting >= caps.in_all {
            return Queued::Full;
        }
        let (sender, turn) = oneshot::channel();
        row.queue.push_back(sender);
        rows.waiting += 1;
        Queued::Waiting(Waiting { turn, seat: Seat(Arc::clone(self), series::Waiting::begin()) })
    }

    /// A place among those who wait, for one that asks again from time to time. `None`: there is none left.
    pub(in crate::layer) fn seat(self: &Arc<Self>, caps: Caps) -> Option<Seat> {
        let rows = &mut *self.lock();
        if caps.per_key == 0 || rows.waiting >= caps.in_all {
            return None;
        }
        rows.waiting += 1;
        Some(Seat(Arc::clone(self), series::Waiting::begin()))
    }

    /// How many requests wait.
    pub(in crate::layer) fn waiting(&self) -> usize {
        self.lock().waiting
    }
}

impl Waiting {
    /// What it comes to. `None`: meet again.
    pub(in crate::layer) async fn turn(&mut self) -> Option<Turn> {
        (&mut self.turn).await.ok()
    }

    /// The wait is over; whoever asks now may have to wait again.
    pub(in crate::layer) fn into_seat(self) -> Seat {
        self.seat
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}
