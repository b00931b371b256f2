//! Preconditions (RFC 9110 section 13): operations that are safe to repeat without any key, because they say which state
//! they were made for.
//!
//! - [`EntityTag`] and [`TagList`]: the fields `ETag`, `If-Match` and `If-None-Match`.
//! - [`Preconditions`]: those of one request, and what they say of a resource as it is. With the feature `axum` it is an
//!   extractor.
//! - [`PreconditionLayer`]: what needs no state of the resource.
//! - [`Version`] and [`versioned`]: an entity tag that never comes back, and the check inside the write.

mod etag;
mod evaluate;
mod fields;
mod future;
mod layer;
mod list;
mod refusal;
mod service;
mod version;
pub mod versioned;

pub use etag::{EntityTag, NotATag};
pub use evaluate::{Current, Verdict};
pub use fields::Preconditions;
pub use future::ResponseFuture;
pub use layer::PreconditionLayer;
pub use list::{Malformed, TagList};
pub use refusal::Refusal;
pub use service::PreconditionService;
pub use version::Version;
