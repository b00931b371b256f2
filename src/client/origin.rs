//! The key stays with the origin that it was made for (C1).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use tower_layer::Layer;
use tower_service::Service;

use crate::key::IDEMPOTENCY_KEY;

/// In the extensions of a request with a key: where its first attempt went, and whether one has been redirected away.
#[derive(Clone, Debug, Default)]
pub(super) struct Home(Arc<Journey>);

#[derive(Debug, Default)]
struct Journey {
    /// As the guard sees it: what stands outside may know no origin, or another one.
    origin: OnceLock<Origin>,
    was_left: AtomicBool,
}

impl Home {
    /// Whether this goes to another origin than the first one did.
    fn is_left_for(&self, uri: &Uri) -> bool {
        let origin = Origin::of(uri);
        let left = *self.0.origin.get_or_init(|| origin.clone()) != origin;
        if left {
            self.0.was_left.store(true, Ordering::Release);
        }
        left
    }

    /// An attempt without a key has been made: to repeat it were not safe.
    pub(super) fn was_left<B>(request: &Request<B>) -> bool {
        request.extensions().get::<Self>().is_some_and(|home| home.0.was_left.load(Ordering::Acquire))
    }
}

/// Scheme, host and port (RFC 6454 section 4); `None` where the URI has no authority.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin(Option<(String, String, Option<u16>)>);

impl Origin {
    fn of(uri: &Uri) -> Self {
        Self(uri.authority().map(|authority: &Authority| {
            let scheme = uri.scheme().map_or("", Scheme::as_str).to_ascii_lowercase();
            let port = authority.port_u16().or(match scheme.as_str() {
                "http" => Some(80),
                "https" => Some(443),
                _ => None,
            });
            (scheme, authority.host().to_ascii_lowercase(), port)
        }))
    }
}

/// Takes the key off a request that a redirect leads to another origin, which has nothing to do with it and might log it.
/// The operation is then not retried.
///
/// It stands **inside** of what follows redirects, and that inside of [`Idempotent`](super::Idempotent) or
/// [`KeyLayer`](super::KeyLayer): outside, each hop would get a key of its own. What follows redirects must pass the
/// request's extensions on, as tower-http's `FollowRedirect` does.
#[derive(Clone, Copy, Debug, Default)]
pub struct OriginGuard;

impl<S> Layer<S> for OriginGuard {
    type Service = OriginService<S>;

    fn layer(&self, inner: S) -> OriginService<S> {
        OriginService { inner }
    }
}

/// The service of [`OriginGuard`].
#[derive(Clone, Debug)]
pub struct OriginService<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for OriginService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if request.extensions().get::<Home>().is_some_and(|home| home.is_left_for(request.uri())) {
            request.headers_mut().remove(IDEMPOTENCY_KEY);
        }
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_scheme_host_and_port() {
        let origin = |text: &'static str| Origin::of(&Uri::from_static(text));
        assert_eq!(origin("http://a.example/x"), origin("http://A.example:80/y?z"));
        assert_eq!(origin("https://a.example"), origin("https://a.example:443"));
        for other in ["https://a.example", "http://b.example", "http://a.example:81", "/x"] {
            assert_ne!(origin("http://a.example"), origin(other), "{other}");
        }
        assert_eq!(origin("/x"), origin("/y"));
    }
}
