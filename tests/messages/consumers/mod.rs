//! Consumers of real brokers: what M9 says to do with each answer of the inbox.

mod chain;
mod engine;
mod handler;
mod http;
mod layer;
mod nats;
mod process;
mod rabbitmq;
mod redis_streams;
mod window;
