//! The probe passes what is right and finds what is wrong (Q8).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idempotency::layer;
use idempotency::testing::probe::{Probe, ProbeError, Profile, Report, Verdict};
use idempotency::{IdempotencyLayer, MemoryStore, Scope};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

const BODY: &str = r#"{"amount": 12, "wait": 0}"#;
const SLOW: &str = r#"{"amount": 12, "wait": 900}"#;

/// Serves on loopback until the test ends.
async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

async fn probe(app: Router, profile: Profile) -> Report {
    let url = serve(app).await;
    let probe = Probe::new(&url, "/payments", BODY).unwrap().slow_body(SLOW).profile(profile);
    let report = probe.persist_for(Duration::from_secs(2)).run().await.unwrap();
    println!("{report}");
    report
}

fn failures(report: &Report) -> Vec<&'static str> {
    report.failures().collect()
}

/// Makes a payment with an id of its own.
async fn pay(body: &[u8]) -> Result<Value, StatusCode> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let order: Value = serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    sleep(Duration::from_millis(order["wait"].as_u64().unwrap_or(0))).await;
    Ok(json!({ "id": LAST.fetch_add(1, Ordering::Relaxed), "amount": order["amount"] }))
}

fn right(settle: impl FnOnce(IdempotencyLayer<MemoryStore>) -> IdempotencyLayer<MemoryStore>) -> Router {
    let layer = settle(IdempotencyLayer::new(MemoryStore::new(), Scope::shared()));
    let handler = async |body: Bytes| match pay(&body).await {
        Ok(made) => (StatusCode::CREATED, [(header::LOCATION, "/payments/1")], made.to_string()).into_response(),
        Err(status) => status.into_response(),
    };
    Router::new().route("/payments", post(handler)).layer(layer)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_holds_all_that_is_promised() {
    let report = probe(right(IdempotencyLayer::require_key), Profile::Ietf).await;
    assert_eq!(failures(&report), [""; 0]);
    assert!(report.findings().iter().all(|finding| finding.verdict == Verdict::Holds), "{report}");
    assert_eq!(report.to_json()["passed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_in_the_other_profile_and_waiting_holds_it_too() {
    let app = right(|layer| layer.profile(layer::Profile::stripe()).wait_up_to(Duration::from_secs(5)));
    let report = probe(app, Profile::Stripe).await;
    assert_eq!(failures(&report), [""; 0]);
    // Where duplicates wait nobody is told to come back.
    let waits = report.findings().iter().find(|finding| finding.name == "in-progress-retry-after").unwrap();
    assert!(matches!(waits.verdict, Verdict::NotApplicable(_)), "{report}");
}

#[derive(Clone, Default)]
struct Careless(Arc<Mutex<HashMap<String, Kept>>>);

#[derive(Clone)]
enum Kept {
    Running,
    Done { request: Bytes, answer: String },
}

/// The key, without the quotes that it may have.
fn key_of(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("idempotency-key")?.to_str().ok()?.trim_matches('"').to_owned())
}

fn refused(status: StatusCode, title: &str) -> Response {
    let document = json!({ "title": title, "status": status.as_u16() });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], document.to_string()).into_response()
}

impl Careless {
    fn get(&self, key: &str) -> Option<Kept> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn put(&self, key: String, kept: Kept) {
        self.0.lock().unwrap().insert(key, kept);
    }

    /// What is told of a finished request; `None`: it is not known.
    fn known(&self, key: &str, body: &Bytes) -> Option<Response> {
        match self.get(key)? {
            Kept::Done { request, .. } if request != body => {
                Some(refused(StatusCode::UNPROCESSABLE_ENTITY, "Another request"))
            }
            Kept::Done { answer, .. } => Some((StatusCode::CREATED, answer).into_response()),
            Kept::Running => {
                Some(([(header::RETRY_AFTER, "1")], refused(StatusCode::CONFLICT, "In progress")).into_response())
            }
        }
    }

    async fn finish(&self, key: String, body: Bytes) -> Response {
        match pay(&body).await {
            Ok(made) => {
                self.put(key, Kept::Done { request: body, answer: made.to_string() });
                (StatusCode::CREATED, made.to_string()).into_response()
            }
            Err(status) => status.into_response(),
        }
    }
}

/// Looks, works, and only then notes the key.
async fn without_a_claim(State(kept): State<Careless>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(key) = key_of(&headers) else { return refused(StatusCode::BAD_REQUEST, "No key") };
    if let Some(known) = kept.known(&key, &body) {
        return known;
    }
    // What a look into a database takes.
    sleep(Duration::from_millis(20)).await;
    kept.finish(key, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_notes_its_keys_too_late_is_found() {
    let app = Router::new().route("/payments", post(without_a_claim)).with_state(Careless::default());
    let found = failures(&probe(app, Profile::Ietf).await);
    for name in ["race", "race-mismatch", "in-progress", "mismatch-during"] {
        assert!(found.contains(&name), "{name} in {found:?}");
    }
    // It keeps what it has done.
    assert!(!found.contains(&"replay-body") && !found.contains(&"mismatch-after"), "{found:?}");
}

/// Claims its keys and knows nothing but them: neither the request, nor the case of letters, nor how to refuse.
async fn by_key_alone(State(kept): State<Careless>, headers: HeaderMap, body: Bytes) -> Response {
    let key = key_of(&headers).unwrap_or_default().to_lowercase();
    let before = {
        let mut table = kept.0.lock().unwrap();
        let before = table.get(&key).cloned();
        table.entry(key.clone()).or_insert(Kept::Running);
        before
    };
    match before {
        None => {
            // Not cut short by a client that leaves.
            let work = tokio::spawn(async move { kept.finish(key, body).await });
            (StatusCode::CREATED, [(header::LOCATION, "/payments/1")], work.await.unwrap()).into_response()
        }
        Some(Kept::Done { answer, .. }) => (StatusCode::OK, answer).into_response(),
        Some(Kept::Running) => (StatusCode::CONFLICT, "wait").into_response(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_looks_at_the_key_alone_is_found() {
    let app = Router::new().route("/payments", post(by_key_alone)).with_state(Careless::default());
    let found = failures(&probe(app, Profile::Ietf).await);
    let due = [
        "replay-body",
        "replay-headers",
        "in-progress-retry-after",
        "missing-key",
        "malformed-key",
        "long-key",
        "bytes-of-key",
        "mismatch-after",
        "problem-bodies",
    ];
    for name in due {
        assert!(found.contains(&name), "{name} in {found:?}");
    }
    assert!(!found.contains(&"disconnect-during"), "{found:?}");
}

/// Does everything right, but in the future of the connection: who leaves takes the work along and leaves the key.
async fn cut_short(State(kept): State<Careless>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(key) = key_of(&headers).filter(|key| !key.is_empty()) else {
        return refused(StatusCode::BAD_REQUEST, "No key");
    };
    if let Some(known) = kept.known(&key, &body) {
        return known;
    }
    kept.put(key.clone(), Kept::Running);
    kept.finish(key, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_keys_stay_held_when_a_client_leaves_is_found() {
    let app = Router::new().route("/payments", post(cut_short)).with_state(Careless::default());
    let found = failures(&probe(app, Profile::Ietf).await);
    assert!(found.contains(&"disconnect-during"), "{found:?}");
    assert!(!found.contains(&"in-progress") && !found.contains(&"in-progress-retry-after"), "{found:?}");
}

#[tokio::test]
async fn what_cannot_be_probed_is_said_at_once() {
    let gone = Probe::new("http://127.0.0.1:1", "/payments", BODY).unwrap().run().await;
    assert!(matches!(gone, Err(ProbeError::Unreachable(_))), "{gone:?}");
    let url = serve(right(IdempotencyLayer::require_key)).await;
    let refused = Probe::new(&url, "/payments", "not json").unwrap().run().await;
    assert!(matches!(refused, Err(ProbeError::NotAccepted { status: 400, .. })), "{refused:?}");
    assert!(matches!(Probe::new("ftp://a", "/", BODY), Err(ProbeError::Address(_))));
    assert!(matches!(Probe::new(&url, "/", BODY).unwrap().header("a b", "c"), Err(ProbeError::Malformed(_))));
}
