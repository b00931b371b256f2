//! HTTP endpoints.

mod judge;
mod request;
mod sign;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::{Client, Url};
use tokio::time::{Instant, timeout_at};

use super::{Answer, Publisher, Publishing, Reason};
use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;
use request::Mode;

pub use sign::{Sign, StandardWebhooks, ToSign};

/// How long the own client takes to connect before the endpoint counts as unreachable.
const CONNECT: Duration = Duration::from_secs(2);
/// How much of an answer is read, so that its connection can be used again.
const DRAINED: usize = 16 * 1024;

/// Sends events by POST, as CloudEvents in binary or structured mode. An event's topic is a path below the base URL; an
/// empty one is the base URL itself.
///
/// | answer of the endpoint | means |
/// |---|---|
/// | 2xx | acked |
/// | 408, 425, 429, 5xx, 409 with `Retry-After` | [`Answer::Unavailable`], and `Retry-After` is obeyed |
/// | 401, 403, 404, 405, 407, 421 | refused, to be tried again: somebody may set the endpoint right |
/// | every other 4xx, and 3xx | refused for good; redirects are not followed |
/// | none, after it was sent | [`Answer::Unknown`] |
/// | no connection | [`Answer::Unavailable`] |
///
/// Endpoints drop duplicates by the event's id (`ce-id`, `webhook-id`). The URL may hold a secret: it is in no `Debug` and
/// in no answer.
#[derive(Clone)]
pub struct HttpPublisher {
    base: Url,
    client: Client,
    mode: Mode,
    sign: Option<Arc<dyn Sign>>,
    deadline: Duration,
}

impl HttpPublisher {
    /// To this `http` URL, or `https` where the host's `reqwest` has TLS. Without a proxy, and no more than two seconds to
    /// connect.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: not such a URL.
    pub fn new(url: &str) -> Result<Self, Error> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| Error::with_source(ErrorKind::Setup, error))?;
        Self::with_client(client, url)
    }

    /// With a client of the host's: its proxy, its certificates, its credentials. It must not follow redirects, nor send
    /// a request again by itself.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: not an `http` or `https` URL.
    pub fn with_client(client: Client, url: &str) -> Result<Self, Error> {
        // The source may show the URL with its secret.
        let wrong = || Error::with_source(ErrorKind::Setup, "not the URL of an HTTP endpoint");
        let base = Url::parse(url).map_err(|_| wrong())?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(wrong());
        }
        Ok(Self { base, client, mode: Mode::Binary, sign: None, deadline: Duration::from_secs(10) })
    }

    /// Sends the whole event as one JSON object (`application/cloudevents+json`).
    #[must_use]
    pub fn structured(self) -> Self {
        Self { mode: Mode::Structured, ..self }
    }

    /// Signs each request: [`StandardWebhooks`], or a function of your own.
    #[must_use]
    pub fn sign(self, sign: impl Sign + 'static) -> Self {
        Self { sign: Some(Arc::new(sign)), ..self }
    }

    /// How long the head of an answer is waited for, connecting included. Ten seconds by default.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn attempt(&self, event: &PendingEvent) -> Answer {
        let now = SystemTime::now();
        let request = request::request(&self.base, self.mode, self.sign.as_deref(), event, now);
        let Some(request) = request else { return Answer::never(Reason::Malformed) };
        let until = Instant::now() + self.deadline;
        match timeout_at(until, self.client.execute(request)).await {
            Ok(Ok(mut response)) => {
                let answer = judge::judge(response.status(), response.headers(), SystemTime::now());
                let _ = timeout_at(until, drain(&mut response)).await;
                answer
            }
            // A request that was never begun.
            Ok(Err(error)) if error.is_connect() => Answer::UNAVAILABLE,
            Ok(Err(error)) if error.is_builder() => Answer::never(Reason::Malformed),
            Ok(Err(_)) | Err(_) => Answer::Unknown,
        }
    }
}

/// What the endpoint says beside its status is nothing to us.
async fn drain(response: &mut reqwest::Response) {
    let mut read = 0;
    while read < DRAINED {
        match response.chunk().await {
            Ok(Some(chunk)) => read += chunk.len(),
            Ok(None) | Err(_) => return,
        }
    }
}

impl Publisher for HttpPublisher {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move { self.attempt(&event).await })
    }
}

impl fmt::Debug for HttpPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPublisher")
            .field("host", &self.base.host_str())
            .field("mode", &self.mode)
            .field("signs", &self.sign.is_some())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
