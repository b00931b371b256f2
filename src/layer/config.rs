//! The settings of a layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Method};

use super::cache::ReplayCache;
use super::inflight::Caps;
use crate::events::Of;
use crate::fingerprint::Fingerprinter;
use crate::key::{KeyRules, KeySource};
use crate::policy::{Policy, Unguarded};
use crate::problem::Renderer;
use crate::record::HeaderFilter;
use crate::scope::Scope;

/// Set on every replayed answer, and on no other.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// How the endpoint enters the look-up key (H11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointKey {
    /// Method and original path: the same key on another path is another operation.
    #[default]
    Path,
    /// Method and axum's `MatchedPath`, such as `/payments/{id}`; the path where there is none.
    MatchedPath,
    /// Left out: the same key on another endpoint is a mismatch (422, or what the profile says).
    Ignored,
}

#[derive(Clone)]
pub(super) struct Config {
    pub(super) scope: Scope,
    pub(super) methods: Vec<Method>,
    pub(super) guard: Option<Guard>,
    pub(super) key_required: bool,
    pub(super) key_source: KeySource,
    pub(super) key_rules: KeyRules,
    pub(super) endpoint: EndpointKey,
    pub(super) fingerprinter: Fingerprinter,
    pub(super) previous_fingerprinters: Vec<Fingerprinter>,
    pub(super) policy: Policy,
    pub(super) headers: HeaderFilter,
    pub(super) renderer: Renderer,
    pub(super) replayed_header: HeaderName,
    pub(super) body_limit: usize,
    pub(super) answer_limit: usize,
    pub(super) buffer_for: Duration,
    pub(super) claim_timeout: Duration,
    pub(super) retention: Duration,
    pub(super) reruns: u32,
    pub(super) detached: bool,
    pub(super) unprotected_without_store: bool,
    /// How long duplicates wait for the answer; `None`: they are told 409 at once.
    pub(super) wait: Option<Duration>,
    pub(super) caps: Caps,
    pub(super) replay_cache: Option<Arc<ReplayCache>>,
    /// Its name in metrics and log lines.
    pub(super) route: Option<&'static str>,
}

#[derive(Clone)]
pub(super) struct Guard(Arc<dyn Fn(&Parts) -> bool + Send + Sync>);

impl Guard {
    pub(super) fn new(guard: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(guard))
    }
}

impl Config {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            methods: vec![Method::POST, Method::PATCH],
            guard: None,
            key_required: false,
            key_source: KeySource::default(),
            key_rules: KeyRules::default(),
            endpoint: EndpointKey::default(),
            fingerprinter: Fingerprinter::default(),
            previous_fingerprinters: Vec::new(),
            policy: Policy::default(),
            headers: HeaderFilter::default(),
            renderer: Renderer::default(),
            replayed_header: IDEMPOTENT_REPLAYED,
            body_limit: 2 * 1024 * 1024,
            answer_limit: 8 * 1024 * 1024,
            buffer_for: Duration::from_secs(10),
            claim_timeout: Duration::from_secs(5),
            retention: Duration::from_secs(24 * 60 * 60),
            reruns: 0,
            detached: true,
            unprotected_without_store: false,
            wait: None,
            caps: Caps { per_key: 32, in_all: 1024 },
            replay_cache: None,
            route: None,
        }
    }

    /// What the events of its requests belong to.
    pub(super) fn of(&self) -> Of<'static> {
        self.route.map_or(Of::Process, Of::Route)
    }

    /// Whether the layer has anything to do with this request (H1, H3). A CORS preflight never needs a key.
    pub(super) fn guards(&self, parts: &Parts) -> bool {
        parts.method != Method::OPTIONS
            && parts.method != Method::HEAD
            && match &self.guard {
                Some(Guard(guard)) => guard(parts),
                None => self.methods.contains(&parts.method),
            }
            && parts.extensions.get::<Unguarded>().is_none()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("scope", &self.scope)
            .field("methods", &self.methods)
            .field("key_required", &self.key_required)
            .field("key_source", &self.key_source)
            .field("endpoint", &self.endpoint)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}
