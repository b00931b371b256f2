//! Checks from outside whether an HTTP service keeps what idempotency keys promise (Q8). The service may be written in
//! any language; what it does is seen in its answers alone.
//!
//! ```no_run
//! # async fn check() -> Result<(), Box<dyn std::error::Error>> {
//! use idempotency::testing::probe::{Probe, Profile};
//!
//! let body = r#"{"amount": 1250, "currency": "EUR", "card": "ok"}"#;
//! let report = Probe::new("http://127.0.0.1:3000", "/payments", body)?
//!     .header("authorization", "Bearer probe")?
//!     .slow_body(r#"{"amount": 1250, "currency": "EUR", "card": "slow:1500"}"#)
//!     .profile(Profile::Ietf)
//!     .run()
//!     .await?;
//! println!("{report}");
//! assert!(report.passed());
//! # Ok(())
//! # }
//! ```

mod disconnects;
mod keys;
mod profile;
mod races;
mod refusals;
mod replays;
mod report;
mod samples;
mod session;
mod wire;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

pub use profile::Profile;
pub use report::{Finding, Report, Verdict};

use samples::Samples;
use session::Session;
use wire::Wire;

/// Why a service could not be probed at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Not `http://HOST[:PORT]`.
    #[error("the address must be http://HOST[:PORT]: {0}")]
    Address(String),
    /// No header field can have this name or value, or no request this path.
    #[error("not a header field, or not a path: {0}")]
    Malformed(String),
    /// Nobody answers there.
    #[error("the service does not answer: {0}")]
    Unreachable(String),
    /// The service refuses the very request that all checks are made with.
    #[error("the service answers {status} to the request that it is probed with: {excerpt}")]
    NotAccepted {
        /// What it answers.
        status: u16,
        /// How its answer begins.
        excerpt: String,
    },
}

/// One service, and the request that it is probed with.
///
/// The request is sent some hundred times under some tens of keys, so as many operations are really made.
#[derive(Debug)]
pub struct Probe {
    wire: Wire,
    samples: Samples,
    profile: Profile,
}

impl Probe {
    /// Probes `POST path` at `http://HOST[:PORT]` with this body, which the service must accept. A body that is JSON is sent
    /// as `application/json` unless [`header`](Self::header) says otherwise.
    ///
    /// # Errors
    /// [`ProbeError::Address`] and [`ProbeError::Malformed`].
    pub fn new(url: &str, path: &str, body: impl Into<Bytes>) -> Result<Self, ProbeError> {
        let samples = Samples::new(body.into());
        let mut headers = HeaderMap::new();
        if samples.is_json() {
            headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(Self { wire: Wire::new(url, path, headers)?, samples, profile: Profile::Ietf })
    }

    /// Sets a header field of every request, such as `authorization`.
    ///
    /// # Errors
    /// [`ProbeError::Malformed`].
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, ProbeError> {
        let malformed = || ProbeError::Malformed(name.to_owned());
        let name = name.parse::<HeaderName>().map_err(|_| malformed())?;
        self.wire.headers.insert(name, HeaderValue::from_str(value).map_err(|_| malformed())?);
        Ok(self)
    }

    /// The method, POST by default.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.wire.method = method;
        self
    }

    /// Another request that the service would accept. By default the first number in the body is made one larger.
    #[must_use]
    pub fn other_body(mut self, body: impl Into<Bytes>) -> Self {
        self.samples.other = Some(body.into());
        self
    }

    /// A request that the service accepts and takes about a second or two for. Without one it cannot be seen what happens
    /// while a request runs.
    #[must_use]
    pub fn slow_body(mut self, body: impl Into<Bytes>) -> Self {
        self.samples.slow = Some(body.into());
        self
    }

    /// What the service follows.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// How long one answer may take; 30 s by default.
    #[must_use]
    pub fn answer_within(mut self, limit: Duration) -> Self {
        self.wire.patience = limit;
        self
    }

    /// How long a request is sent again while it is told to come back later; 60 s by default. A key that is held for longer
    /// counts as stuck.
    #[must_use]
    pub fn persist_for(mut self, limit: Duration) -> Self {
        self.wire.persistence = limit;
        self
    }

    /// Makes all checks, one after the other.
    ///
    /// # Errors
    /// [`ProbeError::Unreachable`] and [`ProbeError::NotAccepted`]. What a check finds is in the report.
    pub async fn run(self) -> Result<Report, ProbeError> {
        let session = Session::open(self.wire, self.samples, self.profile).await?;
        let mut findings = Vec::new();
        replays::check(&session, &mut findings).await;
        races::check(&session, &mut findings).await;
        disconnects::check(&session, &mut findings).await;
        keys::check(&session, &mut findings).await;
        refusals::check(&session, &mut findings).await;
        Ok(Report::new(findings))
    }
}
