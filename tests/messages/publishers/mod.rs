//! Publishers against real brokers.

mod events;
mod http;
mod nats;
mod rabbitmq;
mod rabbitmq_neighbours;
mod redis_streams;
