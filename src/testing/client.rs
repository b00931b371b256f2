//! Whether a client makes its operations safe to repeat (C5).

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::key::{IDEMPOTENCY_KEY, Key};

/// What the server does to an attempt after it has counted it.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Closes the connection: the work is done and the answer is lost.
    Drop,
    /// 503.
    Unavailable,
    /// 409 that says that waiting helps.
    Busy,
}

/// What happens to the attempts of each operation, before it is answered 201.
const OPERATIONS: [&[Fault]; 4] =
    [&[Fault::Drop], &[Fault::Unavailable], &[Fault::Busy], &[Fault::Drop, Fault::Unavailable, Fault::Drop]];

/// One attempt, as the server got it.
struct Attempt {
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Default)]
struct Seen(Mutex<HashMap<String, Vec<Attempt>>>);

/// Runs `client` for several operations against a server on loopback that fails, and checks what it sent.
///
/// `client` gets the URL of one operation, sends **one** request to it as often as it takes, and returns when it has its
/// answer. The server loses the connection after it has read the request, or answers 503, or 409 with `Retry-After: 0`;
/// at most three failures an operation, then 201.
///
/// ```no_run
/// # use idempotency::testing::assert_one_key_per_operation;
/// # async fn pay(url: &str, amount: u64) {}
/// # async fn test() {
/// assert_one_key_per_operation(|url| async move { pay(&url, 1250).await }).await;
/// # }
/// ```
///
/// # Panics
/// - An operation was not tried until it was answered.
/// - An attempt had no key, a malformed one, or several.
/// - Attempts at one operation differed in key, method, content type or body.
/// - Two operations had one key.
/// - The server could not listen on loopback.
pub async fn assert_one_key_per_operation<C, F>(client: C)
where
    C: Fn(String) -> F,
    F: Future<Output = ()>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let (listener, address) = match listener.and_then(|listener| listener.local_addr().map(|at| (listener, at))) {
        Ok(listening) => listening,
        Err(error) => panic!("no server on loopback: {error}"),
    };
    let seen = Arc::new(Seen::default());
    // Dropped with this future, and the server with it.
    let mut server = JoinSet::new();
    server.spawn(serve(listener, Arc::clone(&seen)));
    for operation in 0..OPERATIONS.len() {
        client(format!("http://{address}/operations/{operation}")).await;
    }
    server.abort_all();
    let seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
    let keys: Vec<Key> = OPERATIONS
        .iter()
        .enumerate()
        .map(|(number, faults)| {
            let attempts = seen.get(&format!("/operations/{number}")).map_or(&[][..], Vec::as_slice);
            match judge(attempts, faults.len()) {
                Ok(key) => key,
                Err(why) => panic!("operation {number} ({faults:?}), {} attempts: {why}", attempts.len()),
            }
        })
        .collect();
    let different: HashSet<&Key> = keys.iter().collect();
    assert_eq!(different.len(), keys.len(), "two operations had one key");
}

/// The one key of these attempts.
fn judge(attempts: &[Attempt], faults: usize) -> Result<Key, String> {
    if attempts.len() <= faults {
        return Err("it was given up before it was answered".to_owned());
    }
    if attempts.len() > faults + 1 {
        return Err("it was sent again after it was answered".to_owned());
    }
    let mut of_operation = None;
    for (number, attempt) in attempts.iter().enumerate() {
        let mut lines = attempt.headers.get_all(IDEMPOTENCY_KEY).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(format!("attempt {number} has no Idempotency-Key, or several"));
        };
        let key = Key::parse(line.as_bytes()).map_err(|error| format!("attempt {number}: {error}"))?;
        let first = &attempts[0];
        if *of_operation.get_or_insert_with(|| key.clone()) != key {
            return Err(format!("attempt {number} has another key"));
        }
        if attempt.body != first.body {
            return Err(format!("attempt {number} has another body"));
        }
        if attempt.method != first.method || attempt.headers.get(CONTENT_TYPE) != first.headers.get(CONTENT_TYPE) {
            return Err(format!("attempt {number} has another method or content type"));
        }
    }
    of_operation.ok_or_else(|| "it was never sent".to_owned())
}

async fn serve(listener: TcpListener, seen: Arc<Seen>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let seen = Arc::clone(&seen);
        let service = service_fn(move |request| answer(Arc::clone(&seen), request));
        connections.spawn(async move {
            // An error is the fault that it was told to have, or a client that left.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(seen: Arc<Seen>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = parts.uri.path().to_owned();
    let number = path.rsplit('/').next().and_then(|number| number.parse::<usize>().ok());
    let faults = number.and_then(|number| OPERATIONS.get(number)).copied().unwrap_or_default();
    let attempt = {
        let mut seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = seen.entry(path).or_default();
        attempts.push(Attempt { method: parts.method, headers: parts.headers, body });
        attempts.len() - 1
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = match faults.get(attempt) {
        Some(Fault::Drop) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Fault::Busy) => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("0"));
            StatusCode::CONFLICT
        }
        None => StatusCode::CREATED,
    };
    Ok(response)
}
