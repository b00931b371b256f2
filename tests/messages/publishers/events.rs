//! Events as a relay would have read them.

use std::sync::Arc;
use std::time::SystemTime;

use idempotency::outbox::{Bucket, Event, PendingEvent, Place};
use uuid::Uuid;

pub fn order(topic: &str) -> Event {
    Event::new("broker", topic, "order.placed", "/orders").key("c1").payload("application/json", r#"{"n": 1}"#)
}

pub fn pending(event: Event, redrives: u32) -> Arc<PendingEvent> {
    let id = event.id_ref().copied().unwrap_or_else(Uuid::now_v7);
    let bucket = Bucket::of(event.destination(), event.key_ref(), &id);
    Arc::new(PendingEvent::new(Place { bucket, seq: 1 }, id, event, SystemTime::now(), redrives))
}

pub fn event(topic: &str) -> Arc<PendingEvent> {
    pending(order(topic), 0)
}

/// The same event each time, by its number.
pub fn numbered(topic: &str, n: u64) -> Arc<PendingEvent> {
    pending(order(topic).id(Uuid::from_u64_pair(7, n)), 0)
}

/// The same event, published anew by an operator.
pub fn redriven(event: &PendingEvent, redrives: u32) -> Arc<PendingEvent> {
    pending(event.event().clone().id(event.id()), redrives)
}

/// A topic that no other test has.
pub fn topic() -> String {
    format!("t{}", Uuid::new_v4().simple())
}
