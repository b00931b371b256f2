//! The setters of a layer.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};

use super::IdempotencyLayer;
use super::cache::ReplayCache;
use super::config::{Config, EndpointKey, Guard};
use super::inflight::Caps;
use super::profile::Profile;
use crate::fingerprint::Fingerprinter;
use crate::key::{KeyRules, KeySource};
use crate::policy::Policy;
use crate::problem::Render;
use crate::record::HeaderFilter;
use crate::store::{RollbackOnDrop, Store};

impl<S: Store> IdempotencyLayer<S> {
    fn with(mut self, set: impl FnOnce(&mut Config)) -> Self {
        set(&mut self.config);
        self
    }

    /// A set of settings that belong together: which methods are guarded, what the same key on another endpoint means, the
    /// policy, the statuses of refusals and the retention. Call it first: what you set before it, it replaces.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.with(|config| profile.apply(config))
    }

    /// The guarded methods: POST and PATCH unless you say otherwise. OPTIONS and HEAD are never guarded.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|config| config.methods = methods.into_iter().collect())
    }

    /// Decides per request which ones are guarded, instead of the methods. OPTIONS and HEAD are never guarded.
    #[must_use]
    pub fn guard(self, guard: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.guard = Some(Guard::new(guard)))
    }

    /// Refuses guarded requests without a key: 400 `missing-key`. By default they pass, with a plain transaction where
    /// the store has one to lend.
    #[must_use]
    pub fn require_key(self) -> Self {
        self.with(|config| config.key_required = true)
    }

    /// Where the key comes from: the header field `Idempotency-Key` unless you say otherwise.
    #[must_use]
    pub fn key_source(self, source: KeySource) -> Self {
        self.with(|config| config.key_source = source)
    }

    /// Stricter rules for keys.
    #[must_use]
    pub fn key_rules(self, rules: KeyRules) -> Self {
        self.with(|config| config.key_rules = rules)
    }

    /// How the endpoint enters the look-up key: method and path unless you say otherwise.
    #[must_use]
    pub fn endpoint(self, endpoint: EndpointKey) -> Self {
        self.with(|config| config.endpoint = endpoint)
    }

    /// What makes two requests the same request.
    ///
    /// Requests that were accepted under other settings can no longer be compared and count as the same, unless
    /// [`previous_fingerprint`](IdempotencyLayer::previous_fingerprint) names those settings.
    #[must_use]
    pub fn fingerprint(self, fingerprinter: Fingerprinter) -> Self {
        self.with(|config| config.fingerprinter = fingerprinter)
    }

    /// What made two requests the same before [`fingerprint`](IdempotencyLayer::fingerprint) was changed: requests are
    /// computed in this way too, and compared so with what was stored so. May be called for several. Take it out when the
    /// last record from before the change has expired; each one costs another pass over the body.
    ///
    /// It compares with records of the past. A process that has not been deployed yet does not know the new settings, so
    /// what a newer process stores still counts as the same there.
    #[must_use]
    pub fn previous_fingerprint(self, fingerprinter: Fingerprinter) -> Self {
        self.with(|config| config.previous_fingerprinters.push(fingerprinter))
    }

    /// What an answer means for its operation.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        self.with(|config| config.policy = policy)
    }

    /// Which header fields of an answer are stored.
    #[must_use]
    pub fn stored_headers(self, headers: HeaderFilter) -> Self {
        self.with(|config| config.headers = headers)
    }

    /// How refusals look: problem documents unless you say otherwise. The layer's own only: what extractors and
    /// [`RetryLater`](crate::RetryLater) answer stays a problem document. Refusals of gRPC calls keep their form.
    #[must_use]
    pub fn refusals(self, render: impl Render) -> Self {
        self.with(|config| config.renderer.set(render))
    }

    /// A `Link` field for refusals over HTTP, such as `<https://docs.example.com/idempotency>; rel="describedby"`.
    #[must_use]
    pub fn described_by(self, link: HeaderValue) -> Self {
        self.with(|config| config.renderer.described_by(link))
    }

    /// The header field that marks a replay: `Idempotent-Replayed` unless you say otherwise.
    #[must_use]
    pub fn replayed_header(self, name: HeaderName) -> Self {
        self.with(|config| config.replayed_header = name)
    }

    /// The largest request body of a guarded request, in bytes (2 MiB); larger is 413.
    #[must_use]
    pub fn body_limit(self, bytes: usize) -> Self {
        self.with(|config| config.body_limit = bytes)
    }

    /// The largest answer body that is stored, in bytes (8 MiB). A larger one reaches the first client whole, and a
    /// retry is told 410 `answer-not-kept`.
    #[must_use]
    pub fn answer_limit(self, bytes: usize) -> Self {
        self.with(|config| config.answer_limit = bytes)
    }

    /// How long an answer's body may take to be complete (10 s) before it is sent as it comes, and not kept.
    #[must_use]
    pub fn buffer_for(self, limit: Duration) -> Self {
        self.with(|config| config.buffer_for = limit)
    }

    /// How long a claim may take, the wait for a connection included (5 s); then 503 `store-unavailable`.
    #[must_use]
    pub fn claim_timeout(self, limit: Duration) -> Self {
        self.with(|config| config.claim_timeout = limit)
    }

    /// How long a record is kept from its acceptance (24 h); at least 60 s from its answer.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|config| config.retention = retention)
    }

    /// Lets duplicates of a running request wait for its answer, up to `limit`, instead of telling them 409 at once.
    ///
    /// They wait in their own request's future and hold no connection and no place in the inner service. If the running
    /// request comes to nothing, the one that has waited longest runs. A request that runs in another process is asked
    /// for by one of them, every 0.1 to 1 s.
    #[must_use]
    pub fn wait_up_to(self, limit: Duration) -> Self {
        self.with(|config| config.wait = Some(limit))
    }

    /// Keeps answers that this process has stored in the last 30 s, in at most so many bytes, and replays them without
    /// asking the store (S27). Off by default.
    ///
    /// Other requests are compared with them as with the store's own records: same decision, same answers. What an operator
    /// changes in the store shows up here up to 30 s later. Worth it where a store is far away and clients repeat at once.
    #[must_use]
    pub fn replay_cache(self, bytes: usize) -> Self {
        self.with(|config| config.replay_cache = Some(Arc::new(ReplayCache::new(bytes))))
    }

    /// How many requests may wait at once, for one key (32) and in all (1,024); more are told 409. A guessed key must
    /// not be a way to fill the service with waiting requests.
    #[must_use]
    pub fn waiters(self, per_key: usize, in_all: usize) -> Self {
        self.with(|config| config.caps = Caps { per_key, in_all })
    }

    /// A name for the requests of this layer in metrics and log lines, such as `/payments/{id}`: the label `route` of what is
    /// counted and measured of them. None by default.
    ///
    /// It is text of your source, so that no request can make a series. Clones of a layer share everything but what you set on
    /// them: give each route a clone with a name of its own.
    ///
    /// ```
    /// # use idempotency::{IdempotencyLayer, MemoryStore, Scope};
    /// let layer = IdempotencyLayer::new(MemoryStore::new(), Scope::shared());
    /// let (payments, refunds) = (layer.clone().route("/payments"), layer.route("/refunds"));
    /// # let _ = (payments, refunds);
    /// ```
    #[must_use]
    pub fn route(self, name: &'static str) -> Self {
        self.with(|config| config.route = Some(name))
    }

    /// Runs guarded requests *without protection* while the store cannot be reached, instead of 503; also where it does
    /// not answer in time because it has too much to do, which cannot be told apart. Each such run is counted and
    /// logged; a retry of it runs again. The handler gets an [`Attempt`](crate::Attempt) and, if the
    /// database can be reached after all, a plain transaction as for a request without a key. Whoever has waited for
    /// another request ([`wait_up_to`](IdempotencyLayer::wait_up_to)) is told 503: that one may still run.
    #[must_use]
    pub fn run_unprotected_without_store(self) -> Self {
        self.with(|config| config.unprotected_without_store = true)
    }
}

impl<S> IdempotencyLayer<S>
where
    S: Store,
    S::Claim: RollbackOnDrop,
{
    /// Drops the handler when its client leaves, and with it all that it wrote. By default the work goes on and the
    /// client's retry gets its answer. Only for stores where a drop undoes everything; a handler that calls others
    /// must not use it.
    #[must_use]
    pub fn cancel_on_disconnect(self) -> Self {
        self.with(|config| config.detached = false)
    }

    /// Runs the handler again, up to `times`, where the database gave its transaction up in favour of another one
    /// (0): in the settlement, in the commit, or in a statement that the handler answered with
    /// [`RetryLater`](crate::RetryLater). Only for stores where nothing is left of the run before.
    #[must_use]
    pub fn rerun_on_conflict(self, times: u32) -> Self {
        self.with(|config| config.reruns = times)
    }
}
