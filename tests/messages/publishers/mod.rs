//! Publishers against real brokers.

pub mod events;
mod nats;
mod rabbitmq;
mod redis_streams;
