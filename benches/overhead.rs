//! What the layer costs where the store costs next to nothing: the memory store, in process, called from a worker of
//! the runtime. Times of a first request and of a replay over the bare service, and memory of requests in flight.
//!
//! Absolute times depend on the machine, so the same run measures two yardsticks: reading the body with `serde_json`
//! and hashing it, and one task with one channel.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::disallowed_methods, reason = "a benchmark is no library and spawns for itself")]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use idempotency::{IdempotencyLayer, MemoryStore, Scope};
use sha2::{Digest, Sha256};
use tower::{Layer, Service, service_fn};

const ROUNDS: usize = 60;
const PER_ROUND: usize = 1000;
/// How many requests are in flight where memory is measured.
const PARKED: usize = 20_000;
/// A payment as an API would receive it, 735 bytes.
const BODY: &str = r#"{"amount":12995,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3","description":"Order 6735: two chairs, \"oak\"","metadata":{"order_id":"6735","channel":"web","campaign":null,"gift":false},"payment_method":{"type":"card","card":{"exp_month":8,"exp_year":2030,"last4":"4242","brand":"visa"}},"shipping":{"name":"Jenny Rosen","phone":"+49 30 901820","address":{"line1":"Unter den Linden 17","line2":null,"city":"Berlin","postal_code":"10117","country":"DE"}},"items":[{"sku":"chair-oak","quantity":2,"price":5999.5},{"sku":"felt-pads","quantity":8,"price":1.25}],"capture_method":"automatic","statement_descriptor":"FURNITURE SHOP","receipt_email":"jenny@example.com","confirm":true,"note":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
const ANSWER: &str = r#"{"id":"pay_1J2k3L4m5N6o7P","status":"succeeded","amount":12995,"currency":"eur"}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Memory is measured in processes of its own: what one part has freed would serve the next one.
    match std::env::args().nth(1).as_deref() {
        Some("parked-bare") => runtime.block_on(parked(service_fn(park))),
        Some("parked-guarded") => runtime.block_on(parked(layer().layer(service_fn(park)))),
        // For a profiler that counts instructions: `overhead count first 2000`, and `recorder` where metrics are recorded,
        // `named` where the layer has a name in them too.
        Some("count") => {
            let words: Vec<_> = std::env::args().skip(2).collect();
            let times = words.get(1).and_then(|times| times.parse().ok()).unwrap_or(PER_ROUND);
            let what = words.first().cloned().unwrap_or_default();
            let has = |word: &str| words.iter().any(|given| given == word);
            if has("recorder") {
                metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
            }
            let route = has("named").then_some("/payments");
            runtime.block_on(runtime.spawn(async move { count(&what, times, route).await }))?;
        }
        _ => {
            runtime.block_on(runtime.spawn(times()))?;
            memory()?;
        }
    }
    Ok(())
}

fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::new(MemoryStore::new().capacity(1_000_000), Scope::shared())
}

/// Reads its body and answers, as every handler does.
async fn handle<B: http_body::Body>(request: Request<B>) -> Result<Response<Body>, Infallible> {
    black_box(request.into_body().collect().await.map(http_body_util::Collected::to_bytes).ok());
    let mut response = Response::new(Body::from(ANSWER));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert("location", HeaderValue::from_static("/payments/pay_1J2k3L4m5N6o7P"));
    Ok(response)
}

/// Reads its body and keeps it, for ever.
async fn park<B: http_body::Body>(request: Request<B>) -> Result<Response<Body>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).ok();
    std::future::pending::<()>().await;
    black_box(body);
    Ok(Response::new(Body::empty()))
}

fn request(key: usize) -> Request<Body> {
    let mut request = Request::new(Body::from(Bytes::from_static(BODY.as_bytes())));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static("/v1/payments");
    let headers = request.headers_mut();
    headers.insert("host", HeaderValue::from_static("api.example.com"));
    headers.insert("user-agent", HeaderValue::from_static("example-client/1.0"));
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let key = format!("\"6f1d9c1e-0c5a-4c84-9c3f-{key:012x}\"");
    headers.insert("idempotency-key", HeaderValue::try_from(key).unwrap_or(HeaderValue::from_static("k")));
    request
}

/// Sends the requests one after the other and reads their answers.
async fn send<S, R>(service: &mut S, requests: Vec<Request<Body>>) -> Duration
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: http_body::Body,
{
    let count = u32::try_from(requests.len()).unwrap_or(u32::MAX).max(1);
    let start = Instant::now();
    for request in requests {
        if let Ok(response) = service.call(request).await {
            black_box(response.into_body().collect().await.is_ok());
        }
    }
    start.elapsed() / count
}

async fn times() {
    let mut guarded = layer().layer(service_fn(handle));
    let mut bare = service_fn(handle);
    let mut all: [Vec<Duration>; 5] = Default::default();
    for round in 0..ROUNDS {
        let keys = round * PER_ROUND..(round + 1) * PER_ROUND;
        let requests = || keys.clone().map(request).collect::<Vec<_>>();
        let parse = each(|| {
            black_box(serde_json::from_slice::<serde_json::Value>(black_box(BODY.as_bytes())).is_ok());
            black_box(Sha256::digest(black_box(BODY.as_bytes())));
        });
        let spawn = spawned().await;
        let bare = send(&mut bare, requests()).await;
        let first = send(&mut guarded, requests()).await;
        let replay = send(&mut guarded, requests()).await;
        for (times, time) in all.iter_mut().zip([parse, spawn, bare, first, replay]) {
            times.push(time);
        }
    }
    let [parse, spawn, bare, first, replay] = all.map(|mut times| {
        times.sort();
        [times[0], times[times.len() / 2]]
    });
    println!("memory store, in process, JSON of {} B, best and median of {ROUNDS} rounds of {PER_ROUND}", BODY.len());
    let added = [first[0].saturating_sub(bare[0]), first[1].saturating_sub(bare[1])];
    for (name, times) in [
        ("yardstick: serde_json + SHA-256", parse),
        ("yardstick: task and channel", spawn),
        ("bare service", bare),
        ("first request, added", added),
        ("replay, in all", replay),
    ] {
        let ratio = |at: usize| times[at].as_secs_f64() / (parse[at] + spawn[at]).as_secs_f64();
        println!(
            "{name:34} best {:>9.2?} median {:>9.2?}  in yardsticks (sum of both) {:.2} {:.2}",
            times[0],
            times[1],
            ratio(0),
            ratio(1)
        );
    }
}

fn each(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..PER_ROUND {
        work();
    }
    start.elapsed() / u32::try_from(PER_ROUND).unwrap_or(u32::MAX)
}

/// A task that sends one word to whoever has spawned it.
async fn spawned() -> Duration {
    let start = Instant::now();
    for number in 0..PER_ROUND {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { sender.send(number) });
        black_box(receiver.await.ok());
    }
    start.elapsed() / u32::try_from(PER_ROUND).unwrap_or(u32::MAX)
}

/// Work for a profiler: as many requests of one kind, and nothing else of note.
async fn count(what: &str, times: usize, route: Option<&'static str>) {
    let layer = route.map_or_else(layer, |route| layer().route(route));
    let mut guarded = layer.layer(service_fn(handle));
    match what {
        "bare" => {
            send(&mut service_fn(handle), (0..times).map(request).collect()).await;
        }
        "first" => {
            send(&mut guarded, (0..times).map(request).collect()).await;
        }
        _ => {
            send(&mut guarded, (0..times).map(|_| request(0)).collect()).await;
        }
    }
}

fn memory() -> Result<(), Box<dyn std::error::Error>> {
    let measure = |part: &str| -> Result<i64, Box<dyn std::error::Error>> {
        let output = std::process::Command::new(std::env::current_exe()?).arg(part).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    match (measure("parked-bare"), measure("parked-guarded")) {
        (Ok(bare), Ok(guarded)) => println!(
            "memory of one of {PARKED} requests in flight: bare {bare} B, guarded {guarded} B, added {} B",
            guarded - bare
        ),
        _ => println!("memory of requests in flight: not measured (needs /proc)"),
    }
    Ok(())
}

/// Prints by how much the process grows with each request that waits in its handler.
async fn parked<S, R>(service: S)
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
{
    // The runtime's and the allocator's own beginnings do not count.
    let mut warm = service.clone();
    tokio::spawn(async move { warm.call(request(PARKED)).await.is_ok() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = resident();
    for number in 0..PARKED {
        let mut service = service.clone();
        tokio::spawn(async move { service.call(request(number)).await.is_ok() });
    }
    // Until all of them have reached their handlers: the process grows no more.
    let mut last = resident();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = resident();
        if now == last {
            break;
        }
        last = now;
    }
    if let (Some(before), Some(after)) = (before, last) {
        println!("{}", (after - before) / i64::try_from(PARKED).unwrap_or(i64::MAX));
    }
    std::process::exit(0);
}

/// The memory of this process that is in use, in bytes.
fn resident() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib * 1024)
}
