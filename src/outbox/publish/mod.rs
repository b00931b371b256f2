//! Where events go: a publisher hands one event to a destination and says what became of it.
//!
//! | publisher | feature | destination |
//! |---|---|---|
//! | `NatsPublisher` | `nats` | NATS JetStream |
//! | `RabbitMqPublisher` | `rabbitmq` | RabbitMQ |
//! | `KafkaPublisher` | `kafka` | Kafka; preview |
//! | `RedisStreamsPublisher` | `redis` | Redis Streams |
//! | `HttpPublisher` | `http-publisher` | an HTTP endpoint, as webhooks or CloudEvents |
//! | [`LinesPublisher`] | | standard output, or any writer: a CloudEvent a line |
//!
//! [`ServicePublisher`] and [`PublisherService`] put tower middleware around one: time limits, rate limits.

mod answer;
pub mod cloud_events;
#[cfg(feature = "http-publisher")]
mod http_publisher;
#[cfg(feature = "kafka")]
mod kafka;
mod lines;
#[cfg(feature = "rabbitmq")]
mod link;
#[cfg(feature = "nats")]
mod nats;
mod publisher;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis_streams;
mod service;
#[cfg(test)]
mod testing;

pub use answer::{Answer, Reason};
#[cfg(feature = "http-publisher")]
pub use http_publisher::{HttpPublisher, Sign, StandardWebhooks, ToSign};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaPublisher, KafkaPublisherBuilder};
pub use lines::LinesPublisher;
#[cfg(feature = "nats")]
pub use nats::NatsPublisher;
pub use publisher::{Publisher, Publishing};
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqPublisher;
#[cfg(feature = "redis")]
pub use redis_streams::RedisStreamsPublisher;
pub use service::{PublisherService, ServicePublisher};
