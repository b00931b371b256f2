//! What all checks share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::RETRY_AFTER;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::report::{Finding, Verdict};
use super::wire::{Answer, Lost, Wire};
use super::{ProbeError, Profile, Samples};

pub(super) struct Session {
    wire: Arc<Wire>,
    pub(super) samples: Samples,
    pub(super) profile: Profile,
    /// Whether answers to two operations differ, so that one tells which operation made it.
    pub(super) tells_apart: bool,
}

impl Session {
    /// Checks that the service accepts the request.
    pub(super) async fn open(wire: Wire, samples: Samples, profile: Profile) -> Result<Self, ProbeError> {
        let mut session = Self { wire: Arc::new(wire), samples, profile, tells_apart: false };
        let unreachable = |lost: Lost| ProbeError::Unreachable(lost.to_string());
        let first = session.ask(&session.samples.body).await.map_err(unreachable)?;
        let second = session.ask(&session.samples.body).await.map_err(unreachable)?;
        for answer in [&first, &second] {
            if !answer.status.is_success() {
                return Err(ProbeError::NotAccepted { status: answer.status.as_u16(), excerpt: answer.excerpt() });
            }
        }
        session.tells_apart = first.body != second.body;
        Ok(session)
    }

    /// A key that nobody has used, as the service's convention writes it.
    pub(super) fn key(&self) -> Vec<HeaderValue> {
        self.profile.value(&format!("probe-{}", uuid::Uuid::new_v4()))
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn send(&self, keys: &[HeaderValue], body: &Bytes) -> Result<Answer, Lost> {
        self.wire.send(keys, body).await
    }

    /// Sends one request and leaves without its answer.
    pub(super) async fn leave(&self, keys: &[HeaderValue], body: &Bytes) -> Result<(), Lost> {
        self.wire.leave(keys, body).await
    }

    /// Sends these requests at once, each on a connection of its own.
    pub(super) async fn at_once(&self, requests: Vec<(Vec<HeaderValue>, Bytes)>) -> Result<Vec<Answer>, Lost> {
        let mut running = JoinSet::new();
        for (keys, body) in requests {
            let wire = Arc::clone(&self.wire);
            running.spawn(async move { wire.send(&keys, &body).await });
        }
        running.join_all().await.into_iter().collect()
    }

    /// Under a new key, until it is answered for good.
    async fn ask(&self, body: &Bytes) -> Result<Answer, Lost> {
        self.settle(&self.key(), body).await
    }

    /// Sends a request again while it is told to come back later. The answer for good, or the last one.
    pub(super) async fn settle(&self, keys: &[HeaderValue], body: &Bytes) -> Result<Answer, Lost> {
        let end = Instant::now() + self.wire.persistence;
        loop {
            let answer = self.wire.send(keys, body).await?;
            let later = matches!(answer.status.as_u16(), 409 | 425 | 429 | 503) && Instant::now() < end;
            if !later {
                return Ok(answer);
            }
            sleep(wait_of(&answer).unwrap_or(1).clamp(1, 5) * Duration::from_millis(250)).await;
        }
    }

    /// As [`settle`](Self::settle), where nothing but success is right.
    pub(super) async fn succeed(&self, keys: &[HeaderValue], body: &Bytes) -> Result<Answer, Lost> {
        let answer = self.settle(keys, body).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(format!("{} where 2xx was due: {}", answer.status.as_u16(), answer.excerpt()).into())
    }
}

/// Whole seconds that an answer asks to wait for.
pub(super) fn wait_of(answer: &Answer) -> Option<u32> {
    answer.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// What a check has seen. An answer that did not come fails it.
pub(super) fn found(
    findings: &mut Vec<Finding>,
    name: &'static str,
    promise: &'static str,
    verdict: Result<Verdict, Lost>,
) {
    let verdict = verdict.unwrap_or_else(|lost| Verdict::Fails(lost.to_string()));
    findings.push(Finding { name, promise, verdict });
}

/// Holds, or fails with what was seen.
pub(super) fn holds_if(condition: bool, seen: impl FnOnce() -> String) -> Verdict {
    if condition { Verdict::Holds } else { Verdict::Fails(seen()) }
}

pub(super) fn not_applicable(why: &str) -> Verdict {
    Verdict::NotApplicable(why.to_owned())
}
