//! Where events go: a publisher hands one event to a destination and says what became of it.
//!
//! | publisher | feature | destination |
//! |---|---|---|
//! | [`LinesPublisher`] | | standard output, or any writer: a CloudEvent a line |
//!
//! [`ServicePublisher`] and [`PublisherService`] put tower middleware around one: time limits, rate limits.

mod answer;
pub mod cloud_events;
mod lines;
mod publisher;
mod service;
#[cfg(test)]
mod testing;

pub use answer::{Answer, Reason};
pub use lines::LinesPublisher;
pub use publisher::{Publisher, Publishing};
pub use service::{PublisherService, ServicePublisher};
