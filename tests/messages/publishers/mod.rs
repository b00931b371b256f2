//! Publishers against real brokers.

mod events;
mod nats;
mod rabbitmq;
mod redis_streams;
