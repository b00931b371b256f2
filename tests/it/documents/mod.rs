//! The example `documents` as a process, on each engine: by design (D2, D3, D4, D6).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::http::Method;

use crate::service::Engine;
use crate::support::service::{Client, Reply, Service};

const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;
const CREATE: (&str, &str) = ("if-none-match", "*");

/// The service, and one document of it.
struct Documents {
    _service: Service,
    _engine: Engine,
    client: Client,
    address: String,
}

impl Documents {
    fn start(engine: Engine) -> Self {
        let service = Service::start_example("documents", &engine.url(), "127.0.0.1:0", 10);
        let address = service.address.clone();
        Self { _service: service, _engine: engine, client: Client::new(), address }
    }

    /// A document that is not there yet.
    fn document(&self) -> Document {
        let id = uuid::Uuid::new_v4();
        Document { client: self.client.clone(), url: format!("http://{}/documents/{id}", self.address) }
    }
}

#[derive(Clone)]
struct Document {
    client: Client,
    url: String,
}

impl Document {
    async fn send(&self, method: Method, headers: &[(&str, &str)], body: &str) -> Reply {
        self.client.send_with(method, &self.url, headers, body).await.unwrap()
    }

    async fn get(&self) -> Reply {
        self.send(Method::GET, &[], "").await
    }

    /// Creates it; its tag.
    async fn create(&self, body: &str) -> String {
        let reply = self.send(PUT, &[CREATE], body).await;
        assert_eq!(reply.status, 201);
        tag(&reply)
    }
}

fn tag(reply: &Reply) -> String {
    reply.headers["etag"].to_str().unwrap().to_owned()
}

fn problem(reply: &Reply) -> (u16, String) {
    let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    (reply.status.as_u16(), document["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned())
}

/// Runs the tests on each engine.
macro_rules! on_each_engine {
    ($($test:ident)*) => {
        on_each_engine!(@engine sqlite, Engine::sqlite(); $($test)*);
        on_each_engine!(@engine postgres, Engine::postgres().await; $($test)*);
        on_each_engine!(@engine mysql, Engine::mysql().await; $($test)*);
    };
    (@engine $name:ident, $engine:expr; $($test:ident)*) => {
        mod $name {
            use super::{Documents, Engine};

            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    super::$test(Documents::start($engine)).await;
                }
            )*
        }
    };
}

on_each_engine! {
    bodies_are_kept_byte_for_byte
    preconditions_decide
    everything_may_run_twice
    tags_never_come_back
    one_of_two_writers_wins
    one_of_two_creators_wins
    refusals_leave_a_key_free
    a_slow_body_holds_nobody_up
    a_keyed_write_replays
}

async fn bodies_are_kept_byte_for_byte(documents: Documents) {
    let body = "\n{ \"b\" :1.50,\"a\":123456789012345678901234567890, \"\\u00e9\": \"\u{1F600}\" , \"b\": 2}  ";
    let document = documents.document();
    let created = document.send(PUT, &[CREATE], body).await;
    assert_eq!((created.status.as_u16(), created.body.as_ref()), (201, body.as_bytes()));
    let read = document.get().await;
    assert_eq!((read.status.as_u16(), read.body.as_ref(), tag(&read)), (200, body.as_bytes(), tag(&created)));
    assert_eq!(read.headers["content-type"], "application/json");
    // What a patch does not name keeps its text.
    let patched = document.send(PATCH, &[("if-match", &tag(&read))], r#"{"new": 1e400, "b": null}"#).await;
    let expected = "{\"b\": null, \"a\": 123456789012345678901234567890, \"\u{e9}\": \"\u{1F600}\", \"new\": 1e400}";
    assert_eq!(std::str::from_utf8(&patched.body).unwrap(), expected);
    assert_eq!(document.get().await.body, patched.body);
    for (body, status) in [("", 400), ("{", 400), ("{}x", 400), ("[1", 400), ("[]", 422), ("1", 422), ("null", 422)] {
        assert_eq!(document.send(PUT, &[("if-match", "*")], body).await.status, status, "PUT {body}");
        assert_eq!(document.send(PATCH, &[("if-match", "*")], body).await.status, status, "PATCH {body}");
    }
    assert_eq!(document.get().await.body, patched.body);
    // Another caller's documents are others.
    assert_eq!(document.send(Method::GET, &[("authorization", "Bearer bob")], "").await.status, 404);
    assert_eq!(document.send(Method::GET, &[("authorization", "Basic x")], "").await.status, 401);
}

async fn preconditions_decide(documents: Documents) {
    let document = documents.document();
    let stale = "\"00000000-0000-4000-8000-000000000000\"";
    // Absent.
    for (method, headers, status) in [
        (PUT, &[][..], 428),
        (PATCH, &[], 428),
        (DELETE, &[], 204),
        (PUT, &[("if-match", "*")], 412),
        (PUT, &[("if-match", stale)], 412),
        (PATCH, &[("if-match", "*")], 404),
        (PATCH, &[("if-match", stale)], 404),
        (PATCH, &[CREATE], 404),
        (PATCH, &[("if-none-match", stale)], 404),
        (DELETE, &[("if-match", stale)], 204),
        (DELETE, &[("if-match", "*")], 204),
        (Method::GET, &[("if-match", stale)], 404),
        (Method::GET, &[("if-none-match", "*")], 404),
    ] {
        assert_eq!(document.send(method.clone(), headers, "{}").await.status, status, "absent: {method} {headers:?}");
        assert_eq!(document.get().await.status, 404);
    }
    // Malformed, whatever the method and the state.
    for method in [PUT, PATCH, DELETE, Method::GET] {
        for value in ["garbage", "", "*, \"a\"", "\"a b\"", "\"a", "\"a\" \"b\""] {
            for name in ["if-match", "if-none-match"] {
                let reply = document.send(method.clone(), &[(name, value)], "{}").await;
                assert_eq!(problem(&reply), (400, "malformed-precondition".to_owned()), "{method} {name}: {value}");
            }
        }
    }
    let reply = document.send(PUT, &[], "{}").await;
    assert_eq!(problem(&reply), (428, "precondition-required".to_owned()));
    assert_eq!(reply.headers["cache-control"], "no-store");
    // Present.
    let first = document.create("{}").await;
    let weak = format!("W/{first}");
    for (method, headers, status) in [
        (PUT, &[][..], 428),
        (PATCH, &[], 428),
        (PUT, &[CREATE], 412),
        (PUT, &[("if-match", stale)], 412),
        (PUT, &[("if-match", &weak)], 412),
        (PUT, &[("if-none-match", &first)], 412),
        (PUT, &[("if-none-match", &weak)], 412),
        (PUT, &[("if-match", &first), ("if-none-match", "*")], 412),
        (PATCH, &[("if-match", stale)], 412),
        (PATCH, &[CREATE], 412),
        (DELETE, &[("if-match", stale)], 412),
        (DELETE, &[CREATE], 412),
        (Method::GET, &[("if-match", stale)], 412),
        (Method::GET, &[("if-none-match", &first)], 304),
        (Method::GET, &[("if-none-match", &weak)], 304),
        (Method::GET, &[("if-none-match", "*")], 304),
        (Method::GET, &[("if-none-match", stale), ("if-none-match", &first)], 304),
        (Method::GET, &[("if-none-match", stale)], 200),
    ] {
        assert_eq!(document.send(method.clone(), headers, "{}").await.status, status, "present: {method} {headers:?}");
        assert_eq!(tag(&document.get().await), first, "{method} {headers:?}");
    }
    let known = document.send(Method::GET, &[("if-none-match", &first)], "").await;
    assert!(known.body.is_empty() && !known.headers.contains_key("content-length"), "{known:?}");
    let list = format!("{stale}, {first}");
    let second = document.send(PUT, &[("if-match", &list)], "{}").await;
    assert_eq!(second.status, 200);
    let third = document.send(PUT, &[("if-none-match", &first)], "{}").await;
    assert_eq!(third.status, 200);
    let fourth = document.send(PATCH, &[("if-match", "*")], "{}").await;
    assert_eq!(fourth.status, 200);
    assert_eq!(document.send(DELETE, &[("if-match", &tag(&fourth))], "").await.status, 204);
}

// D6: without any key, each twice.
async fn everything_may_run_twice(documents: Documents) {
    let document = documents.document();
    let body = r#"{"title": "draft", "pages": 3}"#;
    for status in [201, 412] {
        assert_eq!(document.send(PUT, &[CREATE], body).await.status, status);
        assert_eq!(document.get().await.body, body);
    }
    let first = tag(&document.get().await);
    for status in [200, 412] {
        assert_eq!(document.send(PUT, &[("if-match", &first)], r#"{"title": "b"}"#).await.status, status);
        assert_eq!(document.get().await.body, r#"{"title": "b"}"#);
    }
    for _ in 0..2 {
        assert_eq!(document.send(PUT, &[("if-match", "*")], r#"{"pages": 1}"#).await.status, 200);
        assert_eq!(document.get().await.body, r#"{"pages": 1}"#);
    }
    // Set, and not incremented.
    for _ in 0..2 {
        assert_eq!(document.send(PATCH, &[("if-match", "*")], r#"{"pages": 4}"#).await.status, 200);
        assert_eq!(document.get().await.body, r#"{"pages": 4}"#);
    }
    let last = tag(&document.get().await);
    for _ in 0..2 {
        assert_eq!(document.send(DELETE, &[("if-match", &last)], "").await.status, 204);
        assert_eq!(document.get().await.status, 404);
    }
}

// D2: a tag stands for one content for ever.
async fn tags_never_come_back(documents: Documents) {
    let document = documents.document();
    let (mut seen, mut content) = (HashSet::new(), HashMap::new());
    for round in 0..3 {
        for body in ["{}", r#"{"a": 1}"#, "{}"] {
            let precondition = if document.get().await.status == 404 { CREATE } else { ("if-match", "*") };
            let reply = document.send(PUT, &[precondition], body).await;
            assert!(seen.insert(tag(&reply)), "round {round}: a tag came back");
            content.insert(tag(&reply), body);
        }
        let before = tag(&document.get().await);
        assert_eq!(document.send(DELETE, &[], "").await.status, 204);
        // What was meant for the one that was deleted does not touch its successor.
        document.create("{}").await;
        assert_eq!(document.send(PUT, &[("if-match", &before)], "{}").await.status, 412);
        assert_eq!(document.send(DELETE, &[], "").await.status, 204);
    }
    assert_eq!(content.len(), 9);
}

/// Method, header fields, body.
type Write = (Method, Vec<(String, String)>, String);

/// Sends all at once; how many had which status.
async fn race(document: &Document, requests: Vec<Write>) -> HashMap<u16, usize> {
    let start = Arc::new(tokio::sync::Barrier::new(requests.len()));
    let mut writers = tokio::task::JoinSet::new();
    for (method, headers, body) in requests {
        let (document, start) = (Document { client: Client::new(), url: document.url.clone() }, Arc::clone(&start));
        writers.spawn(async move {
            start.wait().await;
            let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            document.send(method, &headers, &body).await.status.as_u16()
        });
    }
    writers.join_all().await.into_iter().fold(HashMap::new(), |mut counts, status| {
        *counts.entry(status).or_default() += 1;
        counts
    })
}

// D3: two equal If-Match writers, and a crowd of them; with and without keys.
async fn one_of_two_writers_wins(documents: Documents) {
    for round in 0..20 {
        let document = documents.document();
        let first = document.create("{}").await;
        let writers = if round % 2 == 0 { 2 } else { 6 };
        let method = [PUT, PATCH, DELETE][round % 3].clone();
        let requests = (0..writers).map(|writer| {
            let mut headers = vec![("if-match".to_owned(), first.clone())];
            if round % 4 > 1 {
                headers.push(("idempotency-key".to_owned(), format!("{round}-{writer}")));
            }
            (method.clone(), headers, format!(r#"{{"writer": {writer}}}"#))
        });
        let mut counts = race(&document, requests.collect()).await;
        let done = counts.remove(&200).unwrap_or(0) + counts.remove(&204).unwrap_or(0);
        if method == DELETE {
            // Who comes second finds it absent, as it wanted.
            assert_eq!((done, counts.len()), (writers, 0), "{counts:?}");
        } else {
            assert_eq!((done, counts.remove(&412)), (1, Some(writers - 1)), "round {round}: {counts:?}");
        }
    }
}

// D3: the unique index decides.
async fn one_of_two_creators_wins(documents: Documents) {
    for round in 0..10 {
        let document = documents.document();
        let writers = if round % 2 == 0 { 2 } else { 6 };
        let create = vec![(CREATE.0.to_owned(), CREATE.1.to_owned())];
        let requests = (0..writers).map(|writer| (PUT, create.clone(), format!(r#"{{"writer": {writer}}}"#)));
        let counts = race(&document, requests.collect()).await;
        assert_eq!(counts, HashMap::from([(201, 1), (412, writers - 1)]), "round {round}");
        assert_eq!(document.get().await.status, 200);
    }
}

// D4, H32: the key may be used for the corrected request.
async fn refusals_leave_a_key_free(documents: Documents) {
    let document = documents.document();
    let first = document.create("{}").await;
    let key = ("idempotency-key", "corrected");
    for (headers, status) in [
        (vec![key, CREATE], 412),
        (vec![key], 428),
        (vec![key, ("if-match", "garbage")], 400),
        (vec![key, CREATE], 412),
    ] {
        assert_eq!(document.send(PUT, &headers, r#"{"a": 1}"#).await.status, status);
    }
    let reply = document.send(PUT, &[key, ("if-match", &first)], r#"{"a": 2}"#).await;
    assert_eq!((reply.status.as_u16(), reply.is_replay()), (200, false));
    // Now it is used.
    assert_eq!(document.send(PUT, &[key, ("if-match", &first)], r#"{"a": 3}"#).await.status, 422);
}

// A write without a key begins its transaction when its body is there: on SQLite it would hold everybody's write lock.
async fn a_slow_body_holds_nobody_up(documents: Documents) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let slow = documents.document();
    let path = slow.url.rsplit_once("/documents/").unwrap().1;
    let mut connection = tokio::net::TcpStream::connect(&documents.address).await.unwrap();
    let head = format!(
        "PUT /documents/{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice\r\nif-none-match: *\r\n\
         connection: close\r\ncontent-length: 2\r\n\r\n{{"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let began = std::time::Instant::now();
    documents.document().create("{}").await;
    assert!(began.elapsed() < std::time::Duration::from_secs(3), "{:?}", began.elapsed());
    connection.write_all(b"}").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

// D4, H14
async fn a_keyed_write_replays(documents: Documents) {
    let document = documents.document();
    let create = [("idempotency-key", "create"), CREATE];
    let created = document.send(PUT, &create, "{}").await;
    assert_eq!((created.status.as_u16(), created.is_replay()), (201, false));
    let again = document.send(PUT, &create, "{}").await;
    assert_eq!((again.status.as_u16(), again.is_replay(), tag(&again)), (201, true, tag(&created)));
    for (method, key) in [(PUT, "put"), (PATCH, "patch")] {
        let current = tag(&document.get().await);
        let headers = [("idempotency-key", key), ("if-match", current.as_str())];
        let done = document.send(method.clone(), &headers, r#"{"a": 1}"#).await;
        assert_eq!((done.status.as_u16(), done.is_replay()), (200, false));
        // Its own success has made the tag stale, and a client that has read its own write sends the new one.
        let (own, star) = (tag(&done), "*".to_owned());
        for precondition in [&current, &own, &star] {
            let headers = [("idempotency-key", key), ("if-match", precondition.as_str())];
            let again = document.send(method.clone(), &headers, r#"{"a": 1}"#).await;
            assert_eq!((again.status.as_u16(), again.is_replay(), tag(&again)), (200, true, own.clone()));
        }
        assert_eq!(tag(&document.get().await), own);
    }
    let delete = [("idempotency-key", "delete"), ("if-match", "*")];
    for replay in [false, true] {
        let reply = document.send(DELETE, &delete, "").await;
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (204, replay));
    }
}
