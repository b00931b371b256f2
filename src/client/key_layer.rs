//! Puts a key on requests that have none (C1).

use std::task::{Context, Poll};

use http::{HeaderMap, Method, Request};
use tower_layer::Layer;
use tower_service::Service;

use super::keys::KeyMaker;
use super::origin::Home;
use crate::key::IDEMPOTENCY_KEY;

/// Puts `Idempotency-Key` on requests that have none, for the client's side of a service.
///
/// It stands **outside** of what retries, so that all attempts carry one key: [`Idempotent`](super::Idempotent) holds
/// both in this order. A key that is already there is kept. On a redirect to another origin an
/// [`OriginGuard`](super::OriginGuard) takes it off.
#[derive(Clone, Debug)]
pub struct KeyLayer {
    methods: Vec<Method>,
    keys: KeyMaker,
}

impl KeyLayer {
    /// UUIDv7 keys for POST and PATCH.
    #[must_use]
    pub fn new() -> Self {
        Self { methods: vec![Method::POST, Method::PATCH], keys: KeyMaker::default() }
    }

    /// The methods that get a key: POST and PATCH unless you say otherwise.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Where keys come from: UUIDv7 unless you say otherwise.
    #[must_use]
    pub fn keys(mut self, keys: KeyMaker) -> Self {
        self.keys = keys;
        self
    }

    /// Whether a request of this method, with these fields, needs a key put on.
    pub(super) fn wants(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.methods.contains(method) && !headers.contains_key(IDEMPOTENCY_KEY)
    }

    #[cfg(feature = "reqwest")]
    pub(super) fn maker(&self) -> &KeyMaker {
        &self.keys
    }

    fn put<B>(&self, request: Request<B>) -> Request<B> {
        let (mut parts, body) = request.into_parts();
        if self.wants(&parts.method, &parts.headers)
            && let Some(key) = self.keys.field(&parts)
        {
            parts.headers.insert(IDEMPOTENCY_KEY, key);
        }
        if parts.headers.contains_key(IDEMPOTENCY_KEY) {
            parts.extensions.insert(Home::default());
        }
        Request::from_parts(parts, body)
    }
}

impl Default for KeyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for KeyLayer {
    type Service = KeyService<S>;

    fn layer(&self, inner: S) -> KeyService<S> {
        KeyService { inner, settings: self.clone() }
    }
}

/// The service of [`KeyLayer`].
#[derive(Clone, Debug)]
pub struct KeyService<S> {
    inner: S,
    settings: KeyLayer,
}

impl<S, B> Service<Request<B>> for KeyService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.inner.call(self.settings.put(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn key_of(layer: &KeyLayer, request: http::request::Builder) -> Option<String> {
        let put = layer.put(request.body(()).unwrap());
        put.headers().get(IDEMPOTENCY_KEY).map(|key| key.to_str().unwrap().to_owned())
    }

    // C1
    #[test]
    fn a_key_is_put_where_there_is_none() {
        let layer = KeyLayer::new();
        assert!(key_of(&layer, Request::post("/")).is_some());
        assert!(key_of(&layer, Request::patch("/")).is_some());
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(key_of(&layer, Request::builder().method(method)), None);
        }
        assert_eq!(key_of(&layer, Request::post("/").header("idempotency-key", "mine")).as_deref(), Some("mine"));
        let puts = KeyLayer::new().methods([Method::PUT]);
        assert!(key_of(&puts, Request::put("/")).is_some());
        assert_eq!(key_of(&puts, Request::post("/")), None);
    }

    // C1
    #[test]
    fn a_key_may_be_a_function_of_the_request() {
        let of_order = KeyMaker::from_fn(|parts| Key::new(parts.headers.get("x-order")?.to_str().ok()?).ok());
        let layer = KeyLayer::new().keys(of_order);
        assert_eq!(key_of(&layer, Request::post("/").header("x-order", "o-1")).as_deref(), Some("o-1"));
        assert_eq!(key_of(&layer, Request::post("/").header("x-order", "a, b")).as_deref(), Some("\"a, b\""));
        assert_eq!(key_of(&layer, Request::post("/")), None);
    }
}
