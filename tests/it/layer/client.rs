//! Clients that leave, services that are not ready, shutdowns (H25, H27).

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use idempotency::{IdempotencyLayer, MemoryStore, Scope};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Gate, Runs, layer, post, send, settle_down};

/// A router that yields a few times on its way, and one whose body does.
fn yielding(runs: &Runs) -> axum::Router {
    let runs = runs.clone();
    axum::Router::new().fallback(async move |body: String| {
        tokio::task::yield_now().await;
        let run = runs.next();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        (StatusCode::CREATED, format!("run {run} {body}"))
    })
}

// H25, cases T04 and T05
#[tokio::test]
async fn a_client_that_leaves_at_any_moment_gets_the_answer_by_its_retry() {
    for polls in 0..20 {
        let runs = Runs::default();
        let store = Fake::new()
            .on_claim(|_| tokio::task::yield_now().map(|()| None))
            .on_settle(|_| tokio::task::yield_now().map(|()| None));
        let layer = IdempotencyLayer::new(store, Scope::shared());
        let app = yielding(&runs).layer(layer.clone());
        let ended = {
            let mut leaving = std::pin::pin!(send(&app, post("k")));
            let mut ended = false;
            for _ in 0..polls {
                ended = futures_util::poll!(leaving.as_mut()).is_ready();
                if ended {
                    break;
                }
                tokio::task::yield_now().await;
            }
            ended
        };
        layer.drain().await;
        assert!(runs.count() <= 1);
        assert_eq!(runs.count() == 1, polls > 0, "{polls}: the work goes on");
        let retry = send(&app, post("k")).await;
        assert_eq!((retry.text(), retry.is_replay()), ("run 1 {}", polls > 0), "{polls}");
        assert_eq!(runs.count(), 1, "{polls}");
        layer.drain().await;
        assert_eq!((layer.running(), layer.keys_in_flight()), (0, 0));
        if ended {
            return;
        }
    }
    panic!("the request never came to its end");
}

// H25, cases T06 and T07: where a drop rolls back, a drop may cancel.
#[tokio::test]
async fn cancel_on_disconnect_drops_the_handler_and_frees_the_key() {
    let counters = Counters::default();
    let _guard = counters.install();
    let (runs, gate, store) = (Runs::default(), Gate::new(), Fake::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).cancel_on_disconnect();
    let app = gate.app(&runs).layer(layer.clone());
    {
        let mut leaving = std::pin::pin!(send(&app, post("k")));
        assert!(futures_util::poll!(leaving.as_mut()).is_pending());
        gate.entered().await;
    }
    assert_eq!(store.settlements(), ["drop"]);
    assert_eq!(counters.of("dropped"), 1, "case T07");
    assert_eq!((layer.running(), layer.keys_in_flight()), (0, 0));
    gate.open(1);
    assert_eq!(send(&app, post("k")).await.text(), "run 2");
}

// H25
#[tokio::test]
async fn the_service_is_always_ready() {
    let never = tower::service_fn(async |_: Request<_>| Ok::<_, std::io::Error>(Response::new(Body::empty())));
    let mut service = layer().layer(NeverReady(never));
    let ready = poll_fn(|cx| Poll::Ready(Service::<Request<Body>>::poll_ready(&mut service, cx))).await;
    assert!(matches!(ready, Poll::Ready(Ok(()))));
}

#[derive(Clone)]
struct NeverReady<S>(S);

impl<S: Service<Req>, Req> Service<Req> for NeverReady<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Pending
    }

    fn call(&mut self, request: Req) -> S::Future {
        self.0.call(request)
    }
}

// H25: nothing is claimed for a service that is not ready, and its error is the service's own.
#[tokio::test]
async fn the_inner_service_is_ready_before_the_claim() {
    let store = Fake::new();
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let inner = service_fn(async |_: Request<_>| Ok::<_, std::io::Error>(Response::new(Body::empty())));
    let service = layer.layer(NeverReady(inner));
    let waiting = tokio::spawn(async move { send(&service, post("k")).await });
    settle_down().await;
    assert_eq!(store.claims(), 0);
    waiting.abort();
    let broken = ServiceBuilder::new()
        .layer(IdempotencyLayer::new(store.clone(), Scope::shared()))
        .map_request(|request: Request<_>| request)
        .service(tower::util::BoxCloneService::new(Broken));
    assert_eq!(broken.oneshot(post("k")).await.unwrap_err().to_string(), "not today");
    assert_eq!(store.claims(), 0);
}

#[derive(Clone)]
struct Broken;

impl<B> Service<Request<B>> for Broken {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Response<Body>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Err(std::io::Error::other("not today")))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        unreachable!("never ready")
    }
}

// H25, case C28: a duplicate takes no place that the first request needs.
#[tokio::test]
async fn a_duplicate_is_answered_while_the_first_holds_the_only_place() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let service = ServiceBuilder::new().layer(layer()).layer(ConcurrencyLimitLayer::new(1)).service(gate.app(&runs));
    let first = tokio::spawn({
        let service = service.clone();
        async move { send(&service, post("k")).await }
    });
    gate.entered().await;
    for _ in 0..3 {
        assert_eq!(send(&service, post("k")).await.said(), "409 in-progress");
    }
    gate.open(1);
    assert_eq!(first.await.unwrap().said(), "201");
    // The place is free again: refusals and replays have not kept one.
    assert!(send(&service, post("k")).await.is_replay());
    gate.open(1);
    assert_eq!(send(&service, post("other")).await.text(), "run 2");
}

// H25: from the claim on, the request runs with the caller's span but on a task of its own.
#[tokio::test]
async fn the_handler_runs_on_a_task_of_its_own() {
    let app = axum::Router::new().fallback(async || format!("{:?}", tokio::task::try_id())).layer(layer());
    let here = format!("{:?}", tokio::task::try_id());
    assert_ne!(send(&app, post("k")).await.text(), here);
}

// H27, case O12
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_detached_work() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let layer = layer();
    let app = gate.app(&runs).layer(layer.clone());
    for key in ["a", "b"] {
        let mut leaving = std::pin::pin!(send(&app, post(key)));
        assert!(futures_util::poll!(leaving.as_mut()).is_pending());
        gate.entered().await;
    }
    assert_eq!(layer.running(), 2);
    assert_eq!(layer.drain_within(Duration::from_secs(1)).await, 2);
    gate.open(1);
    assert_eq!(layer.drain_within(Duration::from_secs(1)).await, 1);
    let drained = Arc::new(AtomicBool::new(false));
    let draining = tokio::spawn({
        let (layer, drained) = (layer.clone(), Arc::clone(&drained));
        async move {
            layer.drain().await;
            drained.store(true, Ordering::SeqCst);
        }
    });
    settle_down().await;
    assert!(!drained.load(Ordering::SeqCst));
    gate.open(1);
    draining.await.unwrap();
    assert_eq!((layer.running(), layer.drain_within(Duration::ZERO).await), (0, 0));
    // Draining is waiting, not closing.
    assert!(send(&app, post("a")).await.is_replay());
}

// H30: a timeout outside is the client's; the work finishes and the retry replays.
#[tokio::test(start_paused = true)]
async fn a_timeout_outside_leaves_the_work_to_finish() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let layer = layer();
    let timeout =
        tower_http::timeout::TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1));
    let app = gate.app(&runs).layer(layer.clone()).layer(timeout);
    assert_eq!(send(&app, post("k")).await.said(), "504");
    gate.open(1);
    layer.drain().await;
    assert!(send(&app, post("k")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

// H25, H27: nothing of the layer is left behind by requests that were dropped before they were first polled.
#[tokio::test]
async fn a_request_that_is_never_polled_does_nothing() {
    let (runs, store) = (Runs::default(), MemoryStore::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let mut app = runs.app().layer(layer.clone());
    for _ in 0..10 {
        drop(app.call(post("k")));
    }
    assert_eq!((runs.count(), store.len(), layer.keys_in_flight(), layer.running()), (0, 0, 0, 0));
}
