//! The paved path: key and retries in the right order.

use http::Method;
use tower::retry::Retry;
use tower_layer::Layer;

use super::key_layer::{KeyLayer, KeyService};
use super::keys::KeyMaker;
use super::policy::RetryPolicy;
use super::retry::IdempotentRetry;

/// One layer that puts a key on each operation and tries it again under that key.
///
/// From the outside in: **this layer** → redirects → [`OriginGuard`](super::OriginGuard) → a timeout for one attempt →
/// the HTTP client. A timeout outside of it is for the whole operation: with one, keep the operation as a
/// [`PendingOperation`](super::PendingOperation) or its outcome is lost.
///
/// The body must be [`RepeatBody`](super::RepeatBody), and the inner service `Clone`. Answers are judged by their heads:
/// a body that breaks off afterwards is the caller's to see. Collect it inside where it must be tried again too.
#[derive(Clone, Debug)]
pub struct Idempotent {
    keys: KeyLayer,
    retry: IdempotentRetry,
}

impl Idempotent {
    /// UUIDv7 keys for POST and PATCH, retried by this policy.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Self {
        Self { keys: KeyLayer::new(), retry: IdempotentRetry::new(policy) }
    }

    /// The methods that get a key: POST and PATCH unless you say otherwise.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.keys = self.keys.methods(methods);
        self
    }

    /// Where keys come from: UUIDv7 unless you say otherwise.
    #[must_use]
    pub fn keys(mut self, keys: KeyMaker) -> Self {
        self.keys = self.keys.keys(keys);
        self
    }
}

impl<S> Layer<S> for Idempotent {
    type Service = KeyService<Retry<IdempotentRetry, S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.keys.layer(Retry::new(self.retry.clone(), inner))
    }
}
