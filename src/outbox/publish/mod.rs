//! Where events go: a publisher hands one event to a destination and says what became of it.
//!
//! | publisher | feature | destination |
//! |---|---|---|
//! | `NatsPublisher` | `nats` | NATS JetStream |
//! | [`LinesPublisher`] | | standard output, or any writer: a CloudEvent a line |
//!
//! [`ServicePublisher`] and [`PublisherService`] put tower middleware around one: time limits, rate limits.

mod answer;
pub mod cloud_events;
mod lines;
#[cfg(feature = "nats")]
mod nats;
mod publisher;
mod service;
#[cfg(test)]
mod testing;

pub use answer::{Answer, Reason};
pub use lines::LinesPublisher;
#[cfg(feature = "nats")]
pub use nats::NatsPublisher;
pub use publisher::{Publisher, Publishing};
pub use service::{PublisherService, ServicePublisher};
