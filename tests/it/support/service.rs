//! The examples as child processes, and a client for it.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A running service. Killed when it is dropped.
pub struct Service {
    child: Child,
    pub address: String,
}

impl Service {
    /// Starts an example that is a service with a database.
    pub fn start_example(name: &str, database_url: &str, listen: &str, pool: u32) -> Self {
        let pool = pool.to_string();
        Self::example(name, &[("LISTEN", listen), ("DATABASE_URL", database_url), ("DATABASE_POOL", &pool)])
    }

    /// Starts an example that prints its address first.
    pub fn example(name: &str, variables: &[(&str, &str)]) -> Self {
        Self::example_with(name, &[], variables)
    }

    /// The same with arguments.
    pub fn example_with(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::example_into(name, arguments, variables, drop)
    }

    /// The same; what it prints after its address goes there, line by line.
    pub fn example_into(
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
        each: impl FnMut(String) + Send + 'static,
    ) -> Self {
        let (child, mut lines) = Self::spawn(name, arguments, variables);
        let first = lines.next().expect("the service prints its address").unwrap();
        let address = first.strip_prefix("listening on http://").expect("the first line is the address").to_owned();
        // It is read, so that it never waits for us.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(each));
        Self { child, address }
    }

    /// An example that has no address.
    pub fn worker(
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
        each: impl FnMut(String) + Send + 'static,
    ) -> Self {
        let (child, lines) = Self::spawn(name, arguments, variables);
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(each));
        Self { child, address: String::new() }
    }

    fn spawn(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = Command::new(example(name))
            .args(arguments)
            .envs(variables.iter().copied())
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the example starts");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }

    /// SIGKILL: no handler of the process runs.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the process has ended by itself.
    pub fn ended(mut self) {
        self.child.wait().unwrap();
    }

    /// Sends a signal: `STOP`, `CONT`, …
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        // The shell's own: a bare machine has no program of that name.
        assert!(Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success());
    }

    /// SIGTERM; the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal("TERM");
        let status = self.child.wait().unwrap();
        status.code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Cargo builds the examples beside the tests.
pub fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let binary = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(binary.exists(), "{} is missing: run `cargo build --example {name}`", binary.display());
    binary
}

/// Requests of one caller.
#[derive(Clone)]
pub struct Client {
    http: HyperClient<HttpConnector, Full<Bytes>>,
    caller: String,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

impl Client {
    pub fn new() -> Self {
        Self::named("alice")
    }

    pub fn named(caller: &str) -> Self {
        Self { http: HyperClient::builder(TokioExecutor::new()).build_http(), caller: caller.to_owned() }
    }

    /// `None` where there was no answer.
    pub async fn send(&self, method: Method, url: &str, key: Option<&str>, body: &str) -> Option<Reply> {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        self.send_with(method, url, &headers, body).await
    }

    /// With these header fields, and the caller's name where it is not among them. `None` where there was no answer.
    pub async fn send_with(&self, method: Method, url: &str, headers: &[(&str, &str)], body: &str) -> Option<Reply> {
        let mut request = Request::builder().method(method).uri(url);
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.header("authorization", format!("Bearer {}", self.caller));
        }
        for (name, value) in headers {
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let response = tokio::time::timeout(Duration::from_secs(30), self.http.request(request)).await.ok()?.ok()?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Reply { status: parts.status, headers: parts.headers, body })
    }

    pub async fn pay(&self, address: &str, key: &str, amount: u32, card: &str) -> Option<Reply> {
        let body = format!(r#"{{"amount": {amount}, "currency": "EUR", "card": "{card}"}}"#);
        self.send(Method::POST, &format!("http://{address}/payments"), Some(key), &body).await
    }

    /// The amounts of all payments that are stored.
    pub async fn amounts(&self, address: &str) -> Vec<u64> {
        let reply = self.send(Method::GET, &format!("http://{address}/payments"), None, "").await.unwrap();
        assert_eq!(reply.status, 200);
        let payments: Vec<serde_json::Value> = serde_json::from_slice(&reply.body).unwrap();
        payments.iter().map(|payment| payment["amount"].as_u64().unwrap()).collect()
    }
}
