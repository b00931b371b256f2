//! What every destination offers a relay.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::Answer;
use crate::outbox::PendingEvent;

/// The publication of one event.
pub type Publishing<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Hands events to a destination. Open: implement it for a broker of your own.
///
/// A publisher neither retries nor orders: it makes one attempt, under a deadline of its own, and says what became of it.
/// Many events are under way at once. A relay hands out at most one event of a key at a time, unless the publisher
/// [keeps an ordered pipeline](Self::keeps_order).
///
/// ```
/// use std::sync::Arc;
///
/// use idempotency::outbox::PendingEvent;
/// use idempotency::outbox::publish::{Answer, Publisher, Publishing};
///
/// struct Nowhere;
///
/// impl Publisher for Nowhere {
///     fn publish(&self, _event: Arc<PendingEvent>) -> Publishing<'_> {
///         Box::pin(async { Answer::ACKED })
///     }
/// }
/// ```
pub trait Publisher: Send + Sync {
    /// Publishes one event and waits for the destination's word.
    ///
    /// # Cancel safety
    /// A future that is dropped is [`Answer::Unknown`]: the destination may get the event.
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_>;

    /// An event of this size fits, in bytes as [`Event::size`](crate::outbox::Event::size) counts them, where that is known
    /// now. A larger one may be answered [`Reason::TooLarge`](super::Reason::TooLarge).
    fn max_event_bytes(&self) -> Option<usize> {
        None
    }

    /// Whether events of one key may be under way together.
    ///
    /// It promises: events stand in the destination's log in the order in which [`publish`](Self::publish) was *called*,
    /// and once one of them is answered by anything but [`Answer::Acked`], none that was handed over behind it and before
    /// that answer is acked. In doubt `false`, which costs one trip per event of a key and nothing across keys.
    fn keeps_order(&self) -> bool {
        false
    }
}

impl<P: Publisher + ?Sized> Publisher for Arc<P> {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        (**self).publish(event)
    }

    fn max_event_bytes(&self) -> Option<usize> {
        (**self).max_event_bytes()
    }

    fn keeps_order(&self) -> bool {
        (**self).keeps_order()
    }
}

impl<P: Publisher + ?Sized> Publisher for Box<P> {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        (**self).publish(event)
    }

    fn max_event_bytes(&self) -> Option<usize> {
        (**self).max_event_bytes()
    }

    fn keeps_order(&self) -> bool {
        (**self).keeps_order()
    }
}
