//! The HTTP middleware. It knows the contract of a store and no database.

mod answer;
mod body;
mod builder;
mod cache;
mod collect;
mod config;
mod future;
mod grpc;
pub(crate) mod heartbeat;
mod inflight;
mod keyless;
pub(crate) mod late;
mod meet;
mod oneshot;
mod profile;
mod reply;
mod request;
mod run;
mod service;
mod story;
mod tasks;
pub(crate) mod unwind;
mod within;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_layer::Layer;

use crate::scope::Scope;
use crate::store::Store;
use config::Config;
use inflight::Inflight;
use tasks::Tasks;

pub use body::{RequestBody, ResponseBody};
pub use config::{EndpointKey, IDEMPOTENT_REPLAYED};
pub use future::ResponseFuture;
pub use grpc::IDEMPOTENCY_PROBLEM;
pub use profile::Profile;
pub use service::Idempotency;

/// Makes the requests of a service safe to repeat.
///
/// A guarded request with an `Idempotency-Key` is claimed in the store, run once, and its answer stored; later
/// requests with the key get the same answer, 409 while the first is running, or 422 if they are other requests.
///
/// # Where to put it
/// trace, request id, CORS, compression → authentication → rate limits → timeout → **idempotency** → preconditions →
/// handler. Authentication and limits stand outside, so that a replay is authorised again and their 401 and 429 leave
/// no trace; a timeout stands outside, so that the work finishes and the retry gets its answer.
///
/// # gRPC
/// Unary calls (`application/grpc`) are guarded like any other POST, with outcomes by `grpc-status` and refusals that
/// gRPC clients understand. Leave streaming methods out, by placement or [`guard`](IdempotencyLayer::guard).
///
/// # Disconnects
/// From the claim on a request runs on a task of its own, with the caller's span (task-locals do not go with it). A
/// client that leaves changes nothing. Wait for such work on shutdown with [`IdempotencyLayer::drain`].
///
/// ```
/// # use idempotency::{IdempotencyLayer, MemoryStore, Scope};
/// # #[derive(Clone)] struct Principal(String);
/// let scope = Scope::from_extension(|p: &Principal| Some(p.0.clone()));
/// let layer = IdempotencyLayer::new(MemoryStore::new(), scope).require_key();
/// ```
#[derive(Clone)]
pub struct IdempotencyLayer<S> {
    store: S,
    config: Config,
    room: Arc<Room>,
}

/// What all services of one layer share.
#[derive(Default)]
struct Room {
    inflight: Arc<Inflight>,
    tasks: Tasks,
}

/// In the extensions of a request that a layer guards already, so that the same layer further in lets it pass: it would
/// meet the request itself as its own duplicate.
#[derive(Clone)]
struct GuardedBy(Arc<Room>);

impl GuardedBy {
    fn mark(parts: &mut Parts, room: &Arc<Room>) {
        parts.extensions.insert(Self(Arc::clone(room)));
    }

    fn is(parts: &Parts, room: &Arc<Room>) -> bool {
        parts.extensions.get::<Self>().is_some_and(|guarded| Arc::ptr_eq(&guarded.0, room))
    }
}

/// What one service needs of its layer, behind one `Arc`.
struct Shared<S> {
    store: S,
    config: Config,
    room: Arc<Room>,
}

impl<S: Store> IdempotencyLayer<S> {
    /// A layer over `store`. Whose key a key is has no default: see [`Scope`].
    #[must_use]
    pub fn new(store: S, scope: Scope) -> Self {
        Self { store, config: Config::new(scope), room: Arc::default() }
    }

    /// Waits until no request runs on a task of its own, for shutdown: after the server has stopped accepting.
    ///
    /// Requests that run in place (those without a key, all with `cancel_on_disconnect`) are the server's to wait for.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the work.
    pub async fn drain(&self) {
        self.room.tasks.drain().await;
    }

    /// As [`IdempotencyLayer::drain`], for at most `limit`. Returns how many requests are still running.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the work.
    pub async fn drain_within(&self, limit: Duration) -> usize {
        self.room.tasks.drain_within(limit).await
    }

    /// How many guarded requests run on tasks of their own right now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.room.tasks.len()
    }

    /// How many requests wait for the answer of another one right now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.room.inflight.waiting()
    }

    /// How many keys this process is asking for or running right now.
    #[must_use]
    pub fn keys_in_flight(&self) -> usize {
        self.room.inflight.len()
    }
}

impl<S: Store, Svc> Layer<Svc> for IdempotencyLayer<S> {
    type Service = Idempotency<Svc, S>;

    fn layer(&self, inner: Svc) -> Self::Service {
        let (store, config, room) = (self.store.clone(), self.config.clone(), Arc::clone(&self.room));
        Idempotency::new(inner, Arc::new(Shared { store, config, room }))
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("store", &self.store)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
