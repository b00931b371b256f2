//! Moves events from the table to their destinations.
//!
//! [`Relay`] runs in the service itself or in a process of its own, any number of them on one database. What they promise:
//!
//! - **At least once.** An event whose transaction was committed is published until its destination has acked it. It may be
//!   published again with the same id; see the inbox for consumers.
//! - **Order by key.** Let a and b be events of one destination and key, and b enqueued after the transaction of a was
//!   committed. Then the first copy of a stands before the first copy of b in the destination's log, whatever relays or
//!   connections die or stall (M31). Of one key at most one event is out, and the next follows its ack (M32).
//! - **Nobody waits for anybody else's events.** A blocked key holds up its own events only; a destination that is away holds
//!   up its own.

mod builder;
mod delivery;
mod driver;
#[doc(hidden)]
pub mod plan;

pub use builder::Relay;
pub use delivery::Delivery;
pub use plan::schedule::Counts;
pub use plan::{OnExhausted, OnUnknown};
