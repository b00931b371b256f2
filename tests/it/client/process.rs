//! The example `client` as a process: its operations end with one effect each, also when it is killed (C4).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::service::Engine;
use crate::support::front::{Front, Then};
use crate::support::service::{Client, Service, example};

struct Run {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Run {
    fn start(url: &str, operations: u32, pending: Option<&Path>) -> Self {
        let mut command = Command::new(example("client"));
        command.arg(url).args(["--operations", &operations.to_string(), "--bearer", "alice"]);
        if let Some(file) = pending {
            command.arg("--pending").arg(file);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> Option<Value> {
        self.lines.next().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }

    /// The remaining lines and the exit code.
    async fn end(mut self) -> (Vec<Value>, Option<i32>) {
        tokio::task::spawn_blocking(move || {
            let lines = std::iter::from_fn(|| self.line()).collect();
            (lines, self.child.wait().unwrap().code())
        })
        .await
        .unwrap()
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn pending(&self) -> PathBuf {
        self.0.path().join("pending.json")
    }
}

/// Each operation had one key and one body over all its attempts; the amounts by key.
fn one_body_a_key(front: &Front) -> BTreeMap<String, u64> {
    let amounts = front.attempts().into_iter().map(|(key, attempts)| {
        assert!(!key.is_empty(), "an attempt without a key");
        for attempt in &attempts {
            assert_eq!(attempt.body, attempts[0].body, "{key}");
            assert_eq!(attempt.headers["content-type"], "application/json");
        }
        let body: Value = serde_json::from_slice(&attempts[0].body).unwrap();
        assert_eq!(body["currency"], "EUR");
        (key, body["amount"].as_u64().unwrap())
    });
    amounts.collect()
}

async fn amounts(service: &Service) -> Vec<u64> {
    let mut amounts = Client::new().amounts(&service.address).await;
    amounts.sort_unstable();
    amounts
}

// C1, C4: the server commits, and the connection closes before the answer, twice for every operation.
async fn an_answer_that_is_lost_has_one_effect(engine: Engine) {
    let service = engine.start("127.0.0.1:0", 5);
    let front = Front::start(&service.address, |_, number| if number < 2 { Then::Lose } else { Then::Answer }).await;
    let folder = Folder::new();
    let run = Run::start(&format!("http://{}/payments", front.address), 12, Some(&folder.pending()));
    let (lines, code) = run.end().await;
    assert_eq!(code, Some(0));
    assert!(!folder.pending().exists());
    let keys = one_body_a_key(&front);
    assert_eq!(keys.len(), 12);
    assert!(front.attempts().values().all(|attempts| attempts.len() == 3));
    assert_eq!(amounts(&service).await, (1..=12).collect::<Vec<u64>>());
    assert_eq!(lines.len(), 12);
    for line in lines {
        let (operation, key) = (line["operation"].as_u64().unwrap(), line["key"].as_str().unwrap());
        assert_eq!(keys[key], operation);
        let expected =
            serde_json::json!({"operation": operation, "key": key, "attempts": 3, "status": 201, "errors": 2});
        assert_eq!(line, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_has_one_effect_on_sqlite() {
    an_answer_that_is_lost_has_one_effect(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_has_one_effect_on_postgres() {
    an_answer_that_is_lost_has_one_effect(Engine::postgres().await).await;
}

// C4: killed in the middle again and again, some operations answered, some under way, some not begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_goes_on_with_the_same_keys_and_bytes() {
    const OPERATIONS: u32 = 30;
    let engine = Engine::sqlite();
    let service = engine.start("127.0.0.1:0", 5);
    // Every attempt that is not the third loses its answer, so that the client is always in the middle of something.
    let front =
        Front::start(&service.address, |_, number| if number % 3 < 2 { Then::Lose } else { Then::Answer }).await;
    let url = format!("http://{}/payments", front.address);
    let folder = Folder::new();
    let mut ended = Vec::new();
    for lines in [0, 3, 5] {
        let (first, mut run) = tokio::task::spawn_blocking({
            let (url, file) = (url.clone(), folder.pending());
            move || {
                let mut run = Run::start(&url, OPERATIONS, Some(&file));
                let first: Vec<Value> = (0..lines).map(|_| run.line().unwrap()).collect();
                (first, run)
            }
        })
        .await
        .unwrap();
        if lines == 0 {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        run.child.kill().unwrap();
        ended.extend(first);
        // What it printed before it died.
        ended.extend(std::iter::from_fn(|| run.line()));
        run.kill();
    }
    assert!(folder.pending().exists());
    assert!(!front.attempts().is_empty() && ended.len() < OPERATIONS as usize, "killed too late");
    let before = one_body_a_key(&front);
    let (lines, code) = Run::start(&url, OPERATIONS, Some(&folder.pending())).end().await;
    ended.extend(lines);
    assert_eq!(code, Some(0));
    assert!(!folder.pending().exists());
    let after = one_body_a_key(&front);
    assert!(before.iter().all(|(key, amount)| after.get(key) == Some(amount)));
    // One key an operation, over all runs; one effect; and one line, save for those killed between file and line.
    let mut of_keys: Vec<u64> = after.values().copied().collect();
    of_keys.sort_unstable();
    let all: Vec<u64> = (1..=u64::from(OPERATIONS)).collect();
    assert_eq!(of_keys, all);
    assert_eq!(amounts(&service).await, all);
    let mut operations: Vec<u64> = ended.iter().map(|line| line["operation"].as_u64().unwrap()).collect();
    operations.sort_unstable();
    let lines = operations.len();
    operations.dedup();
    assert_eq!(operations.len(), lines, "two lines of one operation");
}

// C2: an answer that asks for more patience than there is ends the run; the operation stays, under its key.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_answered_stays_in_the_file() {
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::post;
    use std::sync::{Arc, Mutex};

    let (keys, status) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new((429, Some("3600")))));
    let app = axum::Router::new().route(
        "/payments",
        post({
            let (keys, status) = (keys.clone(), status.clone());
            async move |headers: HeaderMap| {
                keys.lock().unwrap().push(headers["idempotency-key"].to_str().unwrap().to_owned());
                let (status, wait) = *status.lock().unwrap();
                let mut fields = HeaderMap::new();
                fields.extend(wait.map(|wait: &str| (axum::http::header::RETRY_AFTER, wait.parse().unwrap())));
                (StatusCode::from_u16(status).unwrap(), fields)
            }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/payments", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let folder = Folder::new();
    for answer in [(429, Some("3600")), (409, Some("3600")), (503, Some("3600")), (408, Some("3600")), (501, None)] {
        *status.lock().unwrap() = answer;
        let (lines, code) = Run::start(&url, 1, Some(&folder.pending())).end().await;
        assert_eq!((lines.len(), code), (1, Some(2)), "{answer:?}");
        assert_eq!(lines[0]["status"], answer.0);
        assert!(folder.pending().exists());
    }
    // Those in the file count: one more is begun, and none of the old ones again.
    *status.lock().unwrap() = (422, None);
    let (lines, code) = Run::start(&url, 2, Some(&folder.pending())).end().await;
    assert_eq!((lines.len(), code), (2, Some(0)));
    assert!(!folder.pending().exists());
    let mut keys = keys.lock().unwrap().clone();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 2);
}

#[test]
fn a_client_that_cannot_begin_says_so() {
    let folder = Folder::new();
    std::fs::write(folder.pending(), "not JSON").unwrap();
    let file = folder.pending().display().to_string();
    for arguments in [
        vec![],
        vec!["https://a.example/"],
        vec!["http://a.example/", "--operations", "many"],
        vec!["http://a.example/", "--pending"],
        vec!["http://a.example/", "--what"],
        vec!["http://127.0.0.1:9/", "--pending", &file],
    ] {
        let output = Command::new(example("client")).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(std::fs::read_to_string(folder.pending()).unwrap(), "not JSON");
}
