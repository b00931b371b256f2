//! Publishers against real brokers.

mod events;
mod nats;
