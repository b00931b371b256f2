//! A server in front of another one that remembers each attempt and loses answers.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// One attempt, as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What to do with the nth attempt (from 0) under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Pass the answer on.
    Answer,
    /// Let the service do its work, then close the connection without the answer.
    Lose,
}

type Judge = dyn Fn(&str, usize) -> Then + Send + Sync;

#[derive(Clone)]
pub struct Front {
    pub address: SocketAddr,
    attempts: Arc<Mutex<BTreeMap<String, Vec<Attempt>>>>,
}

impl Front {
    /// In front of the service at `target`; `judge` gets key and number of each attempt.
    pub async fn start(target: &str, judge: impl Fn(&str, usize) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = Self { address: listener.local_addr().unwrap(), attempts: Arc::default() };
        let (judge, target): (Arc<Judge>, Arc<str>) = (Arc::new(judge), target.into());
        let serving = front.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (front, judge, target) = (serving.clone(), Arc::clone(&judge), Arc::clone(&target));
                let service = service_fn(move |request| {
                    let (front, judge, target) = (front.clone(), Arc::clone(&judge), Arc::clone(&target));
                    async move { front.pass(&target, &*judge, request).await }
                });
                tokio::spawn(async move {
                    // An error is an answer that was lost, or a client that left.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        front
    }

    /// All attempts so far, by key.
    pub fn attempts(&self) -> BTreeMap<String, Vec<Attempt>> {
        self.attempts.lock().unwrap().clone()
    }

    async fn pass(&self, target: &str, judge: &Judge, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let key = parts.headers.get("idempotency-key").map_or("", |key| key.to_str().unwrap()).to_owned();
        let number = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempts = attempts.entry(key.clone()).or_default();
            attempts.push(Attempt { headers: parts.headers.clone(), body: body.clone() });
            attempts.len() - 1
        };
        parts.uri = format!("http://{target}{}", parts.uri.path()).parse().unwrap();
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(Request::from_parts(parts, Full::new(body))).await.map_err(io::Error::other)?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        match judge(&key, number) {
            Then::Answer => Ok(Response::from_parts(parts, Full::new(body))),
            Then::Lose => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}
