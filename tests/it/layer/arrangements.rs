//! Where the layer can stand (H45): each arrangement compiles, runs once and replays.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::routing::{any, post as posted};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use idempotency::layer::{RequestBody, ResponseBody};
use tower::{ServiceBuilder, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::support::http::{KEY, Runs, layer, post, request, send};

fn handler(runs: &Runs) -> axum::routing::MethodRouter {
    let runs = runs.clone();
    posted(async move || format!("run {}", runs.next()))
}

async fn replays(app: Router, path: &str, runs: &Runs) {
    for replayed in [false, true] {
        let answer = send(&app, request(http::Method::POST, path, Some("k"), "{}")).await;
        assert_eq!((answer.text(), answer.is_replay()), ("run 1", replayed), "{path}");
    }
    assert_eq!(runs.count(), 1);
}

// H45
#[tokio::test]
async fn on_axums_routers_and_routes() {
    let runs = Runs::default();
    replays(Router::new().route("/", handler(&runs)).layer(layer()), "/", &runs).await;
    let runs = Runs::default();
    replays(Router::new().route("/", handler(&runs)).route_layer(layer()), "/", &runs).await;
    let runs = Runs::default();
    replays(Router::new().route("/", handler(&runs).layer(layer())), "/", &runs).await;
    let runs = Runs::default();
    replays(Router::new().route("/", handler(&runs).route_layer(layer())), "/", &runs).await;
    let runs = Runs::default();
    let api = Router::new().route("/pay/{id}", handler(&runs)).layer(layer());
    replays(Router::new().nest("/api", Router::new().nest("/v1", api)), "/api/v1/pay/1", &runs).await;
    let runs = Runs::default();
    let api = Router::new().route("/pay", handler(&runs));
    replays(Router::new().nest("/api", api).layer(layer()), "/api/pay", &runs).await;
    let runs = Runs::default();
    let inner = Router::new().route("/", handler(&runs)).layer(layer());
    replays(Router::new().merge(inner), "/", &runs).await;
    let runs = Runs::default();
    replays(Router::new().nest_service("/s", Router::new().fallback_service(runs.app().layer(layer()))), "/s/x", &runs)
        .await;
}

// H45: the documented order, in one ServiceBuilder over a router.
#[tokio::test]
async fn under_the_usual_middleware() {
    async fn pass(request: AxumRequest, next: Next) -> axum::response::Response {
        next.run(request).await
    }
    let runs = Runs::default();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CorsLayer::permissive())
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::new())
        .layer(RequestBodyLimitLayer::new(1024))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10)))
        .layer(layer());
    replays(Router::new().route("/", handler(&runs)).layer(stack), "/", &runs).await;
    let runs = Runs::default();
    // `from_fn` below us in one ServiceBuilder takes axum's body only.
    let stack = ServiceBuilder::new()
        .layer(from_fn(pass))
        .layer(layer())
        .map_request(|request: Request<RequestBody<Body>>| request.map(Body::new))
        .layer(from_fn(pass));
    replays(Router::new().route("/", handler(&runs)).layer(stack), "/", &runs).await;
    let runs = Runs::default();
    replays(
        Router::new().route("/", handler(&runs)).layer(from_fn(pass)).layer(layer()).layer(from_fn(pass)),
        "/",
        &runs,
    )
    .await;
}

// H45: plain tower services with any body; `Infallible` stays.
#[tokio::test]
async fn on_plain_tower_services() {
    async fn full(request: Request<RequestBody<Full<Bytes>>>) -> Result<Response<Full<Bytes>>, Infallible> {
        Ok(Response::new(Full::new(request.into_body().collect().await?.to_bytes())))
    }
    async fn boxed(
        request: Request<RequestBody<BoxBody<Bytes, std::io::Error>>>,
    ) -> Result<Response<BoxBody<Bytes, std::io::Error>>, Infallible> {
        Ok(Response::new(request.into_body().boxed()))
    }
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(full));
    let full = || Request::post("/").header(KEY, "k").body(Full::new(Bytes::from_static(b"full"))).unwrap();
    let service = tower::util::BoxCloneService::<_, Response<ResponseBody<Full<Bytes>>>, Infallible>::new(service);
    for replayed in [false, true] {
        let answer = send(&service, full()).await;
        assert_eq!((answer.text(), answer.is_replay()), ("full", replayed));
    }
    // The layers that make an answer of their own need `Default` and `From`.
    let service = ServiceBuilder::new()
        .layer(CorsLayer::permissive())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10)))
        .layer(layer())
        .service(service_fn(boxed));
    let boxed = || {
        let body = Full::new(Bytes::from_static(b"boxed")).map_err(|never| match never {}).boxed();
        Request::post("/").header(KEY, "k").body(body).unwrap()
    };
    for replayed in [false, true] {
        let answer = send(&service, boxed()).await;
        assert_eq!((answer.text(), answer.is_replay()), ("boxed", replayed));
    }
}

// H45: two layers, one in the other, do not get in each other's way: each has its store.
#[tokio::test]
async fn in_one_another() {
    let runs = Runs::default();
    let inner = Router::new().route("/", handler(&runs)).layer(layer());
    replays(inner.layer(layer()), "/", &runs).await;
}

// H45: one `Arc` a clone; a service and its layer are Clone + Send + Sync.
#[test]
fn services_and_layers_are_clone_send_and_sync() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    let layer = layer();
    check(&layer);
    check(&tower::Layer::layer(&layer, Router::<()>::new()));
    let empty = ResponseBody::<Empty<Bytes>>::default();
    assert!(http_body::Body::is_end_stream(&empty));
}

// H45, H46: services of one layer share its table, however they were made.
#[tokio::test]
async fn one_layer_on_many_routes_is_one_layer() {
    let (runs, layer) = (Runs::default(), layer());
    let app = Router::new()
        .route("/a", any(handler_of(&runs)).layer(layer.clone()))
        .route("/b", any(handler_of(&runs)).layer(layer.clone()));
    for path in ["/a", "/b"] {
        assert!(!send(&app, request(http::Method::POST, path, Some("k"), "")).await.is_replay());
        assert!(send(&app, request(http::Method::POST, path, Some("k"), "")).await.is_replay());
    }
    assert_eq!((runs.count(), layer.keys_in_flight()), (2, 0));
    drop(post("k"));
}

fn handler_of(runs: &Runs) -> impl Fn() -> std::future::Ready<String> + Clone + Send + Sync + 'static {
    let runs = runs.clone();
    move || std::future::ready(format!("run {}", runs.next()))
}

// H45: the same layer met twice on the way guards once; as its own duplicate a request would wait for itself.
#[tokio::test]
async fn the_same_layer_twice_guards_once() {
    let runs = Runs::default();
    let layer = layer();
    let app = Router::new().route("/", handler(&runs)).layer(layer.clone()).layer(layer);
    replays(app, "/", &runs).await;
}
