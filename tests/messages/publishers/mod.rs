//! Publishers against real brokers.

mod events;
mod http;
mod nats;
mod rabbitmq;
mod redis_streams;
