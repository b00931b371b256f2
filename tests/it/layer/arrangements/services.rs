//! On services without axum: plain tower, hyper, tonic.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idempotency::layer::{RequestBody, ResponseBody};
use tokio::net::TcpListener;
use tonic::service::LayerExt;
use tonic::transport::Server;
use tower::{ServiceBuilder, service_fn};
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::support::grpc::{Calls, Served, text};
use crate::support::http::{KEY, Runs, layer, read, send};

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10))
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
    // A body that is Send and not Sync, as axum's own.
    async fn unsync(
        request: Request<RequestBody<UnsyncBoxBody<Bytes, Infallible>>>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
        Ok(Response::new(request.into_body().boxed_unsync()))
    }
    let post = |body: &'static str| Request::post("/").header(KEY, "k").body(Full::new(Bytes::from(body))).unwrap();
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(full));
    let service = tower::util::BoxCloneService::<_, Response<ResponseBody<Full<Bytes>>>, Infallible>::new(service);
    for replayed in [false, true] {
        let answer = send(&service, post("full")).await;
        assert_eq!((answer.text(), answer.is_replay()), ("full", replayed));
    }
    // The layers that make an answer of their own need `Default` and `From`.
    let service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(layer())
        .layer(timeout())
        .service(service_fn(boxed));
    for replayed in [false, true] {
        let answer = send(&service, post("boxed").map(|body| body.map_err(|never| match never {}).boxed())).await;
        assert_eq!((answer.text(), answer.is_replay()), ("boxed", replayed));
    }
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(unsync));
    for replayed in [false, true] {
        let answer = send(&service, post("unsync").map(BodyExt::boxed_unsync)).await;
        assert_eq!((answer.text(), answer.is_replay()), ("unsync", replayed));
    }
}

// H45: one `Arc` a clone; a service and its layer are Clone + Send + Sync.
#[test]
fn services_and_layers_are_clone_send_and_sync() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    let layer = layer();
    check(&layer);
    check(&tower::Layer::layer(&layer, axum::Router::<()>::new()));
    let empty = ResponseBody::<Empty<Bytes>>::default();
    assert!(http_body::Body::is_end_stream(&empty));
}

// H10, case O09: a layer without store and scope cannot be made: no default. With one, two of these would fit.
#[test]
fn there_is_no_layer_by_default() {
    trait NoDefault<Which> {
        fn holds() {}
    }
    struct HasDefault;
    impl<T> NoDefault<()> for T {}
    impl<T: Default> NoDefault<HasDefault> for T {}
    <idempotency::IdempotencyLayer<idempotency::MemoryStore> as NoDefault<_>>::holds();
    <idempotency::Scope as NoDefault<_>>::holds();
}

// H45: plain hyper, both versions, over TCP.
#[tokio::test]
async fn on_a_plain_hyper_server() {
    let runs = Runs::default();
    let counted = runs.clone();
    let service = service_fn(move |request: Request<RequestBody<Incoming>>| {
        let runs = counted.clone();
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            let text = format!("run {} of {} bytes", runs.next(), body.len());
            Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(text))))
        }
    });
    let layer = layer();
    let service = ServiceBuilder::new().layer(layer.clone()).service(service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            let connection = auto::Builder::new(TokioExecutor::new());
            tokio::spawn(async move { connection.serve_connection(TokioIo::new(stream), service).await });
        }
    });
    for (number, version) in [Version::HTTP_11, Version::HTTP_2].into_iter().enumerate() {
        let client = Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http();
        for replayed in [false, true] {
            let request =
                Request::post(format!("http://{address}/")).version(version).header(KEY, format!("{version:?}"));
            let answer =
                read(client.request(request.body(Full::new(Bytes::from("four"))).unwrap()).await.unwrap()).await;
            let said = format!("run {} of 4 bytes", number + 1);
            assert_eq!((answer.text(), answer.is_replay()), (said.as_str(), replayed), "{version:?}");
        }
    }
    assert_eq!((runs.count(), layer.running()), (2, 0));
    server.abort();
}

// H36, H45: on a tonic server, on one service of it, and with other layers above and below.
#[tokio::test]
async fn on_a_tonic_server() {
    let calls = |runs: &Runs| {
        let runs = runs.clone();
        Calls::new(move |_| {
            let run = format!("run {}", runs.next());
            async move { Ok(tonic::Response::new(text(run))) }
        })
    };
    let runs: [Runs; 4] = Default::default();
    for (number, served) in [
        Served::under(layer(), calls(&runs[0])).await,
        Served::router(Server::builder().add_service(layer().named_layer(calls(&runs[1])))).await,
        Served::with(|incoming| {
            let mut server =
                Server::builder().layer(TraceLayer::new_for_grpc()).layer(layer()).timeout(Duration::from_secs(10));
            server.add_service(calls(&runs[2])).serve_with_incoming(incoming)
        })
        .await,
        Served::with(|incoming| {
            let stack = ServiceBuilder::new().layer(layer()).layer(TraceLayer::new_for_grpc());
            let mut server = Server::builder().layer(stack).concurrency_limit_per_connection(1);
            server.add_service(calls(&runs[3])).serve_with_incoming(incoming)
        })
        .await,
    ]
    .iter()
    .enumerate()
    {
        for replayed in [false, true] {
            let answer = served.say("k", "hello").await.unwrap();
            assert_eq!(answer.get_ref().text, "run 1", "{number}");
            assert_eq!(answer.metadata().contains_key("idempotent-replayed"), replayed, "{number}");
        }
        assert_eq!(runs[number].count(), 1);
    }
}
