//! Where the identity of a message comes from (M9).
//!
//! [`Incoming`] is what the readers see of a message, whatever brought it; [`IdSource`] says where in it its identity
//! stands. The implementations for types of a broker's client are behind the feature of that client and outside semver:
//! they follow its crate.

mod cloud_events;
mod error;
mod http;
mod id_source;
mod incoming;
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod pointer;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;

pub use error::IdError;
pub use id_source::IdSource;
pub use incoming::Incoming;
pub use kafka::KafkaRecord;
#[cfg(feature = "redis")]
pub use redis::RedisEntry;
