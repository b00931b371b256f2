//! The layer's settings.

use http::Method;
use tower_layer::Layer;

use super::service::PreconditionService;

/// What preconditions need no state of the resource for.
///
/// - `If-Match` or `If-None-Match` that does not parse: 400, for every method.
/// - Neither of them where [`require`](Self::require) wants one: 428.
/// - GET and HEAD, after the handler: 304 or 412 by the `ETag` and `Last-Modified` of its 2xx answer.
///
/// Writes are judged by their handlers, which know the state: by the extractor [`Preconditions`](super::Preconditions).
///
/// It stands below the [`IdempotencyLayer`](crate::IdempotencyLayer), directly around the handlers: a retried PUT gets
/// its stored answer before its `If-Match`, which its own success has made stale, is judged.
///
/// # Compressing proxies
/// A proxy or layer that compresses answers must weaken their tags or change them. nginx weakens them: let such tags
/// pass by [`accept_weakened_tags`](Self::accept_weakened_tags). Apache appends `-gzip` to them by default; set it to
/// leave them (`DeflateAlterETag`), or do not compress answers whose tags are sent back.
#[derive(Clone, Debug, Default)]
pub struct PreconditionLayer {
    pub(super) required: Vec<Method>,
    pub(super) accepts_weakened: bool,
}

impl PreconditionLayer {
    /// A layer that requires no preconditions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The methods that need `If-Match` or `If-None-Match`: 428 without (RFC 6585 section 3).
    #[must_use]
    pub fn require(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.required = methods.into_iter().collect();
        self
    }

    /// Lets `If-Match` accept tags that a proxy weakened on the way; see
    /// [`Preconditions::accept_weakened_tags`](super::Preconditions::accept_weakened_tags).
    #[must_use]
    pub fn accept_weakened_tags(mut self) -> Self {
        self.accepts_weakened = true;
        self
    }
}

impl<S> Layer<S> for PreconditionLayer {
    type Service = PreconditionService<S>;

    fn layer(&self, inner: S) -> PreconditionService<S> {
        PreconditionService::new(inner, self.clone())
    }
}
