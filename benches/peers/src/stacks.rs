//! The layers, each as its documentation puts it together.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use http::{Request, Response};
use idempotency::fingerprint::Fingerprinter;
use idempotency::store::Store;
use idempotency::{IdempotencyLayer, Scope};
use idempotent::IdempotencyStore;
use ruts::store::SessionStore;
use ruts::{CookieOptions, SessionLayer};
use tower::util::{BoxCloneSyncService, service_fn};
use tower::{Layer, Service, ServiceExt};
use tower_cookies::CookieManagerLayer;

use crate::work::{Runs, handle};

/// One kind for all: what the box costs, it costs everybody.
pub(crate) type Stack = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Whether its requests carry a session.
    pub(crate) session: bool,
    pub(crate) stack: Stack,
    pub(crate) runs: Runs,
}

/// The handler, for whatever body a layer hands on.
fn handler<B>(
    runs: &Runs,
) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + Sync + use<B>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Send,
{
    let runs = runs.clone();
    service_fn(move |request: Request<B>| handle(runs.clone(), request))
}

/// The handler and nothing else.
pub(crate) fn bare() -> Peer {
    let runs = Runs::default();
    peer("bare", false, handler::<Body>(&runs), runs)
}

fn peer<S, B>(name: &'static str, session: bool, service: S, runs: Runs) -> Peer
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let stack = service.map_response(|response: Response<B>| response.map(Body::new));
    Peer { name, session, stack: BoxCloneSyncService::new(stack), runs }
}

pub(crate) fn ours<S: Store + Clone>(store: S) -> Peer {
    ours_by("idempotency", store, Fingerprinter::new())
}

/// Compares requests in another way than by default.
pub(crate) fn ours_by<S: Store + Clone>(name: &'static str, store: S, fingerprinter: Fingerprinter) -> Peer {
    let runs = Runs::default();
    let layer = IdempotencyLayer::new(store, Scope::shared()).fingerprint(fingerprinter);
    peer(name, false, layer.layer(handler(&runs)), runs)
}

pub(crate) fn idempotent<S>(store: S) -> Peer
where
    S: IdempotencyStore + Clone + Send + Sync + 'static,
{
    let runs = Runs::default();
    let layer = idempotent::middleware::IdempotencyLayer::new(store);
    peer("idempotent", false, layer.layer(handler::<Body>(&runs)), runs)
}

/// `by_key`: goes by the key alone and compares nothing; else it hashes the request.
pub(crate) fn axum_idempotent<S: SessionStore + Send + Sync + 'static>(store: S, by_key: bool) -> Peer {
    let options = IdempotentOptions::default().expire_after(3_600);
    let (name, options) = if by_key {
        ("axum-idempotent, by key alone", options.use_idempotency_key_header(None, true))
    } else {
        ("axum-idempotent, by request", options)
    };
    let sessions = SessionLayer::new(Arc::new(store)).with_cookie_options(CookieOptions::build().name("session"));
    let runs = Runs::default();
    let inner = IdempotentLayer::<S>::new(options).layer(handler::<Body>(&runs));
    peer(name, true, CookieManagerLayer::new().layer(sessions.layer(inner)), runs)
}
