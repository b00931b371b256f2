//! Over real connections, HTTP/1.1 and HTTP/2 (H25, H37–H39, cases T04, T05, F08 and R06).

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::{any, post};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use idempotency::{IdempotencyLayer, MemoryStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::bodies::{Script, Step};
use crate::support::http::{Answered, Gate, KEY, Runs, layer, read};

/// A server on a port of its own, gone with the test.
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
    layer: IdempotencyLayer<MemoryStore>,
}

impl Server {
    async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, layer) = (listener.local_addr().unwrap(), layer());
        let app = app.layer(layer.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, task, layer }
    }

    fn request(&self, version: Version, path: &str, key: &str, body: &'static str) -> Request<Full<Bytes>> {
        Request::post(format!("http://{}{path}", self.address))
            .version(version)
            .header(KEY, key)
            .body(Full::from(body))
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const VERSIONS: [Version; 2] = [Version::HTTP_11, Version::HTTP_2];

fn client(version: Version) -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(version == Version::HTTP_2).build_http()
}

async fn get(client: &Client<HttpConnector, Full<Bytes>>, request: Request<Full<Bytes>>) -> Answered {
    read::<Incoming>(client.request(request).await.unwrap()).await
}

// Cases T04, T05 and F08: the client hangs up in the middle of the handler; the retry replays.
#[tokio::test]
async fn a_connection_that_is_cut_changes_nothing() {
    for version in VERSIONS {
        let (runs, gate) = (Runs::default(), Gate::new());
        let server = Server::start(gate.app(&runs)).await;
        let leaving = client(version);
        let sending = tokio::spawn(leaving.request(server.request(version, "/", "k", "body")));
        gate.entered().await;
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        drop(leaving);
        let client = client(version);
        let again = async |body| get(&client, server.request(version, "/", "k", body)).await;
        assert_eq!(again("body").await.said(), "409 in-progress", "{version:?}");
        assert_eq!(again("other").await.said(), "422 key-reused", "{version:?}");
        gate.open(1);
        server.layer.drain().await;
        let retry = again("body").await;
        assert_eq!((retry.text(), retry.is_replay(), runs.count()), ("run 1", true, 1), "{version:?}");
    }
}

// Case T05 on the bare wire: the socket is closed, not just a future dropped.
#[tokio::test]
async fn a_socket_that_is_closed_changes_nothing() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let server = Server::start(gate.app(&runs)).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: \"k\"\r\ncontent-length: 4\r\n\r\nbody";
    socket.write_all(head.as_bytes()).await.unwrap();
    gate.entered().await;
    drop(socket);
    gate.open(1);
    server.layer.drain().await;
    let retry = get(&client(Version::HTTP_11), server.request(Version::HTTP_11, "/", "k", "body")).await;
    assert_eq!((retry.text(), retry.is_replay(), runs.count()), ("run 1", true, 1));
}

// H19: half a body, then the connection is gone: nothing was claimed and nothing ran.
#[tokio::test]
async fn a_body_cut_by_the_connection_claims_nothing() {
    let runs = Runs::default();
    let server = Server::start(runs.app()).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 400\r\n\r\nbody";
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!((runs.count(), server.layer.running(), server.layer.keys_in_flight()), (0, 0, 0));
    let fresh = get(&client(Version::HTTP_11), server.request(Version::HTTP_11, "/", "k", "body")).await;
    assert_eq!(fresh.text(), "run 1");
}

fn plain(status: u16) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

// H39, case R06: first answer and replay are framed alike, and neither lies about its length.
#[tokio::test]
async fn first_answers_and_replays_are_framed_alike() {
    let app = Router::new()
        .route("/204", any(async || plain(204)))
        .route("/304", any(async || plain(304)))
        .route("/empty", any(async || plain(201)))
        .route("/whole", any(async || (StatusCode::CREATED, "12345")))
        .route("/chunks", any(async || Response::new(Body::new(Script::chunks(["123", "45"])))));
    let server = Server::start(app).await;
    for version in VERSIONS {
        let client = client(version);
        for path in ["/204", "/304", "/empty", "/whole", "/chunks"] {
            let key = format!("{path} {version:?}");
            // A GET is not guarded: what the server makes of the answer by itself.
            let mut bare = server.request(version, path, &key, "");
            *bare.method_mut() = http::Method::GET;
            let bare = get(&client, bare).await;
            let length = if path == "/chunks" { Some("5") } else { bare.header("content-length") };
            for replayed in [false, true] {
                let answer = get(&client, server.request(version, path, &key, "")).await;
                assert_eq!(answer.is_replay(), replayed, "{key}");
                assert_eq!(answer.header("content-length"), length, "{key} {replayed}");
                assert_eq!(answer.header("transfer-encoding"), None, "{key} {replayed}");
                assert_eq!(answer.headers.get_all("date").iter().count(), 1);
                assert_eq!(answer.body, bare.body);
                if version == Version::HTTP_11 && path == "/204" {
                    assert_eq!(length, None);
                }
            }
        }
    }
}

// H39 on the bare wire: pipelined replays on one connection, each with the right length.
#[tokio::test]
async fn pipelined_replays_are_told_apart_by_their_lengths() {
    let app =
        Router::new().route("/none", post(async || StatusCode::NO_CONTENT)).route("/some", post(async || "12345"));
    let server = Server::start(app).await;
    let one = |path: &str, last: bool| {
        let close = if last { "connection: close\r\n" } else { "" };
        format!("POST {path} HTTP/1.1\r\nhost: a\r\n{close}idempotency-key: k\r\ncontent-length: 2\r\n\r\n{{}}")
    };
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let paths = ["/none", "/some", "/none", "/some", "/none", "/some"];
    for (number, path) in paths.iter().enumerate() {
        socket.write_all(one(path, number + 1 == paths.len()).as_bytes()).await.unwrap();
    }
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let mut rest = text.as_str();
    for (number, path) in paths.iter().enumerate() {
        let (head, after) = rest.split_once("\r\n\r\n").unwrap();
        let (status, body) = if *path == "/none" { ("HTTP/1.1 204", "") } else { ("HTTP/1.1 200", "12345") };
        assert!(head.starts_with(status), "{text}");
        assert_eq!(head.contains("content-length: 5"), *path == "/some", "{text}");
        assert_eq!(head.contains("content-length"), *path == "/some", "{text}");
        assert_eq!(head.contains("idempotent-replayed: true"), number >= 2, "{text}");
        rest = after.strip_prefix(body).unwrap();
    }
    assert_eq!(rest, "");
}

// H37: trailers arrive, the first time and on a replay, on both versions.
#[tokio::test]
async fn trailers_arrive_on_first_answers_and_replays() {
    let app = Router::new().fallback(async || {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), "1".parse().unwrap())]);
        let body = Script::new([Step::Data("data"), Step::Trailers(trailers)]);
        Response::builder().header("trailer", "x-sum").body(Body::new(body)).unwrap()
    });
    let server = Server::start(app).await;
    for version in VERSIONS {
        let client = client(version);
        for replayed in [false, true] {
            let mut request = server.request(version, "/", &format!("{version:?}"), "");
            request.headers_mut().insert("te", "trailers".parse().unwrap());
            let answer = get(&client, request).await;
            assert_eq!((answer.text(), answer.is_replay()), ("data", replayed));
            let sum = answer.trailers.as_ref().and_then(|trailers| trailers.get("x-sum"));
            assert!(sum.is_some_and(|sum| sum == "1"), "{version:?} {replayed} {answer:?}");
        }
    }
}

// H40: a stream reaches the first client frame by frame, and a long answer byte for byte.
#[tokio::test]
async fn a_stream_arrives_as_it_comes() {
    let app = Router::new().fallback(async || {
        let body = Script::new([Step::Data("data: 1"), Step::Hang]);
        Response::builder().header("content-type", "text/event-stream").body(Body::new(body)).unwrap()
    });
    let server = Server::start(app).await;
    for version in VERSIONS {
        let client = client(version);
        let key = format!("{version:?}");
        let mut first = client.request(server.request(version, "/", &key, "")).await.unwrap().into_body();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "data: 1");
        assert_eq!(get(&client, server.request(version, "/", &key, "")).await.said(), "410 answer-not-kept");
    }
}

// H19: refused unread, with the client still sending; the connection survives or is closed, but the answer arrives.
#[tokio::test]
async fn a_body_known_to_be_too_large_is_refused_over_the_wire() {
    let runs = Runs::default();
    let server = Server::start(runs.app()).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\nidempotency-key: k\r\ncontent-length: 99999999\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(std::str::from_utf8(&answer).unwrap(), "HTTP/1.1 413", "no 100 Continue, no waiting");
    assert_eq!(runs.count(), 0);
}
