//! A middleware for reqwest-middleware (feature `reqwest`). Its types follow the versions of reqwest and
//! reqwest-middleware, and are outside semver.

use std::pin::Pin;
use std::time::SystemTime;

use http::{Extensions, Method};
use reqwest::redirect;
use reqwest::{ClientBuilder, Request, Response};
use reqwest_middleware::{ClientWithMiddleware, Error, Middleware, Next, Result};
use tokio::time::sleep;

use super::course::Course;
use super::judge::{Sign, judge};
use super::key_layer::KeyLayer;
use super::keys::KeyMaker;
use super::policy::RetryPolicy;
use crate::key::IDEMPOTENCY_KEY;

/// Puts a key on each operation and tries it again under that key: the meaning of [`Idempotent`](super::Idempotent).
///
/// reqwest follows redirects itself, below every middleware, and would carry the key to other origins. Build the client
/// by [`client`], or give it [`same_origin_redirects`].
#[derive(Clone, Debug)]
pub struct IdempotentMiddleware {
    keys: KeyLayer,
    policy: RetryPolicy,
}

impl IdempotentMiddleware {
    /// UUIDv7 keys for POST and PATCH, retried by this policy.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Self {
        Self { keys: KeyLayer::new(), policy }
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

    fn put_key(&self, request: &mut Request) {
        if self.keys.wants(request.method(), request.headers()) {
            let mut head = http::Request::new(()).into_parts().0;
            head.method.clone_from(request.method());
            head.headers.clone_from(request.headers());
            if let Ok(uri) = request.url().as_str().parse() {
                head.uri = uri;
            }
            if let Some(key) = self.keys.maker().field(&head) {
                request.headers_mut().insert(IDEMPOTENCY_KEY, key);
            }
        }
    }

    async fn run(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        self.put_key(&mut request);
        if !request.headers().contains_key(IDEMPOTENCY_KEY) {
            return next.run(request, extensions).await;
        }
        let mut course = Course::begin();
        loop {
            let Some(again) = request.try_clone() else {
                self.policy.say_unrepeatable();
                return next.run(request, extensions).await;
            };
            let result = next.clone().run(request, extensions).await;
            let sign = match &result {
                Ok(response) => judge(&self.policy, response.status(), response.headers(), SystemTime::now()),
                // A request that cannot be built, a redirect that was refused: not of the connection.
                Err(Error::Reqwest(error)) if !error.is_builder() && !error.is_redirect() => Sign::Again,
                Err(_) => Sign::Final,
            };
            match course.next(&self.policy, sign) {
                Some(pause) => sleep(pause).await,
                None => return result,
            }
            request = again;
        }
    }
}

impl Middleware for IdempotentMiddleware {
    fn handle<'a, 'b, 'c, 'd>(
        &'a self,
        request: Request,
        extensions: &'b mut Extensions,
        next: Next<'c>,
    ) -> Pin<Box<dyn Future<Output = Result<Response>> + Send + 'd>>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        Box::pin(self.run(request, extensions, next))
    }
}

/// The paved path: a client of this builder that follows redirects within an origin only, with the middleware.
///
/// # Errors
/// What reqwest's builder says, such as a TLS backend that cannot be set up.
pub fn client(builder: ClientBuilder, middleware: IdempotentMiddleware) -> reqwest::Result<ClientWithMiddleware> {
    let client = builder.redirect(same_origin_redirects()).build()?;
    Ok(reqwest_middleware::ClientBuilder::new(client).with(middleware).build())
}

/// Follows up to ten redirects within the first request's origin. One that leads elsewhere is returned as the answer, so
/// that the key never leaves its origin.
#[must_use]
pub fn same_origin_redirects() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let first = attempt.previous().first().map(reqwest::Url::origin);
        if attempt.previous().len() > 10 {
            attempt.error("too many redirects")
        } else if first.is_none_or(|first| first == attempt.url().origin()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}
