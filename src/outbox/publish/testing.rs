//! Events for the unit tests of this room.

use std::time::SystemTime;

use uuid::Uuid;

use crate::outbox::{Bucket, Event, PendingEvent, Place};

/// As if a relay had read it.
pub(super) fn pending(event: Event, at: SystemTime, redrives: u32) -> PendingEvent {
    let id = event.id_ref().copied().unwrap_or_else(Uuid::new_v4);
    let bucket = Bucket::of(event.destination(), event.key_ref(), &id);
    PendingEvent::new(Place { bucket, seq: 1 }, id, event, at, redrives)
}
