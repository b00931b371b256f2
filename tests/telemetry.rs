//! How many series there are, and what the log says, after many keys, paths, messages and events (H9, case K19).

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{Request, StatusCode};
use idempotency::inbox::{Inbox, Message, MessageId, Processed};
use idempotency::outbox::publish::{Answer, Publisher, Publishing, Reason};
use idempotency::outbox::relay::Relay;
use idempotency::outbox::{Event, Outbox, PendingEvent};
use idempotency::purge::Purger;
use idempotency::{IdempotencyLayer, MemoryStore, Scope, SqliteStore};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tower::ServiceExt;

/// Stands in every key, path, body, header value, scope, message and event of these tests, and nowhere else.
const SECRET: &str = "s3cr3t";
const KEYS: usize = 10_000;
const TOPICS: usize = 10_000;
const MESSAGES: usize = 1_000;
/// So many events are for destinations that the relay does not know, and so many are for its own at first.
const ELSEWHERE: u64 = 20;
const PICKED: usize = 100;
const MOST: u32 = 100_000;
const ROUTE: &str = "/{*path}";

/// Refuses one event in a hundred for good.
struct Picky;

impl Publisher for Picky {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        let refused = event.event().topic().ends_with("77");
        Box::pin(async move { if refused { Answer::never(Reason::Rejected) } else { Answer::ACKED } })
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// H9, case K19: ten thousand keys and paths and ten thousand topics make no more series than one, and none is logged.
#[tokio::test]
async fn nothing_of_a_request_is_in_a_series_or_a_log_line() {
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || lines.clone());
    // Of this crate and of whatever it calls; sqlx logs its statements, which have no value in them.
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.01, 1.0]).unwrap();
    let recorder = builder.build_recorder();
    let shown = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);

    let store = MemoryStore::new();
    let scope = Scope::from_fn(|parts| Some(parts.headers.get("x-tenant")?.to_str().ok()?.to_owned()));
    let layer = IdempotencyLayer::new(store.clone(), scope).require_key().route(ROUTE);
    let app = Router::new().route(ROUTE, post(async || "paid")).layer(layer);
    let one = async |n: usize, body: &str, key: &str| {
        let request = Request::post(format!("/{SECRET}/{n}"))
            .header("x-tenant", format!("{SECRET}-{}", n % 100))
            .header("idempotency-key", format!("{key}{n}"))
            .body(Body::from(format!("{SECRET} {body}")))
            .unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    };
    let mut seen = Vec::new();
    for n in 0..KEYS {
        assert_eq!(one(n, "a", SECRET).await, StatusCode::OK);
        assert_eq!(one(n, "a", SECRET).await, StatusCode::OK, "a replay");
        assert_eq!(one(n, "b", SECRET).await, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(one(n, "a", &format!("\"{SECRET}")).await, StatusCode::BAD_REQUEST, "no end of the string");
        if n == 100 {
            seen.push(series(&shown.render()));
        }
    }
    seen.push(series(&shown.render()));
    assert_eq!(seen[0], seen[1], "the number of series grows with the keys");
    for expected in ["idempotency_claim_seconds", "idempotency_settle_seconds", "idempotency_running 0"] {
        assert!(shown.render().contains(expected), "{expected}: {}", shown.render());
    }
    assert!(
        shown.render().contains(&format!("idempotency_events_total{{event=\"replayed\",route=\"{ROUTE}\"}} {KEYS}"))
    );

    let folder = tempfile::tempdir().unwrap();
    let keys = SqliteStore::open(folder.path().join("t.sqlite")).await.unwrap();
    keys.migrate().await.unwrap();
    let pool = keys.pool().clone();
    let inbox = Inbox::new(pool.clone(), "billing").await.unwrap();
    let outbox = Outbox::new(pool.clone()).await.unwrap();
    let purger = Purger::new().keys("keys", keys).inbox("inbox", inbox.clone()).outbox("outbox", outbox.clone());
    let message = async |n: usize| {
        let payload = format!("{SECRET}{n}");
        let message =
            Message::new(MessageId::new(format!("{SECRET}{n}"), format!("{SECRET}{n}")).unwrap(), payload.as_bytes());
        let event = Event::new("broker", format!("{SECRET}-{n}"), SECRET, "/src")
            .payload("text/plain", payload.clone())
            .key(format!("{SECRET}{n}"));
        let first = inbox.process(&message, async |mut tx| outbox.enqueue(&mut tx, &event).await.map(drop)).await;
        assert!(matches!(first.unwrap(), Processed::First(())));
        let again = inbox.process(&message, async |_| Ok::<_, sqlx::Error>(())).await;
        assert!(matches!(again.unwrap(), Processed::Duplicate));
    };
    let served = async |events: Vec<Event>| {
        for events in events.chunks(500) {
            let mut transaction = pool.begin().await.unwrap();
            outbox.enqueue_all(&mut transaction, events).await.unwrap();
            transaction.commit().await.unwrap();
        }
        let relay = Relay::new(outbox.clone()).publisher("broker", Picky);
        // Until all of them have left or wait for somebody.
        let drained = async {
            while outbox.stats().await.unwrap().pending > outbox.failing(MOST).await.unwrap().len() as u64 + ELSEWHERE {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        relay.run(drained).await.unwrap()
    };
    let topic = |n: usize| {
        // Of its own: it would wait for a refused event of the same key.
        let key = format!("{SECRET}-{n}");
        Event::new("broker", format!("{SECRET}-{n}"), key.clone(), "/src").payload("text/plain", key.clone()).key(key)
    };
    let elsewhere = |n: u64| Event::new(format!("{SECRET}-{n}"), SECRET, SECRET, "/src").payload("text/plain", SECRET);
    message(0).await;
    let mut first: Vec<Event> = (0..ELSEWHERE).map(elsewhere).collect();
    first.extend((0..PICKED).map(topic));
    served(first).await;
    purger.purge_once().await.unwrap();
    let before = series(&shown.render());
    for n in 1..MESSAGES {
        message(n).await;
    }
    served((PICKED..PICKED + TOPICS).map(topic).collect()).await;
    purger.purge_once().await.unwrap();
    let text = shown.render();
    assert_eq!(series(&text), before);
    assert!(!text.contains(SECRET));
    assert!(before < 80, "{before} series");
    for expected in [
        format!("idempotency_events_total{{event=\"message_processed\",consumer=\"billing\"}} {MESSAGES}"),
        "idempotency_events_total{event=\"outbox_event_blocked\",destination=\"broker\"}".to_owned(),
        "idempotency_outbox_failed_attempts_total{destination=\"broker\"}".to_owned(),
        "idempotency_outbox_published_total{destination=\"broker\"}".to_owned(),
        format!("idempotency_events_total{{event=\"executed\",route=\"{ROUTE}\"}} {KEYS}"),
    ] {
        assert!(text.contains(&expected), "{expected}: {text}");
    }
    every_label_is_in_the_guide(&text);

    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("event=\"replayed\"") && text.contains("message_duplicate"), "nothing is logged");
    let line = text.lines().find(|line| line.contains(SECRET));
    assert_eq!(line, None);
}

// The gauge of requests whose client has left goes up and down with them.
#[tokio::test]
async fn a_client_that_leaves_is_counted_until_its_request_ends() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let layer = IdempotencyLayer::new(MemoryStore::new(), Scope::shared()).require_key();
    let slow = async || tokio::time::sleep(Duration::from_millis(100)).await;
    let app = Router::new().route("/", post(slow)).layer(layer);
    let request = Request::post("/").header("idempotency-key", "k").body(Body::empty()).unwrap();
    let call = app.oneshot(request);
    assert!(tokio::time::timeout(Duration::from_millis(30), call).await.is_err());
    let has = |line: &str| shown.render().lines().any(|shown| shown == line);
    assert!(has("idempotency_detached 1") && has("idempotency_running 1"), "{}", shown.render());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(has("idempotency_detached 0") && has("idempotency_running 0"), "{}", shown.render());
}

// Gauges of an outbox are summed over processes: a relay that is dropped at work takes its part back.
#[tokio::test]
async fn a_relay_that_is_dropped_counts_nothing_any_more() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let shown = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().unwrap();
    let keys = SqliteStore::open(folder.path().join("t.sqlite")).await.unwrap();
    keys.migrate().await.unwrap();
    let outbox = Outbox::new(keys.pool().clone()).await.unwrap();
    let mut transaction = keys.pool().begin().await.unwrap();
    outbox.enqueue(&mut transaction, &Event::new("elsewhere", "t", "e", "/src")).await.unwrap();
    transaction.commit().await.unwrap();
    let has = |line: &str| shown.render().lines().any(|shown| shown == line);
    let counted = async {
        while !has("idempotency_outbox_events{state=\"pending\"} 1") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        ended = Relay::new(outbox).publisher("broker", Picky).run(std::future::pending()) => panic!("{ended:?}"),
        seen = tokio::time::timeout(Duration::from_secs(60), counted) => seen.expect("it is counted every 15 s"),
    }
    assert!(has("idempotency_outbox_events{state=\"pending\"} 0"), "{}", shown.render());
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count()
}

/// What a scrape shows, compared with the table of the guide. A histogram's buckets have the exporter's own `le`.
fn every_label_is_in_the_guide(text: &str) {
    let guide = include_str!("../docs/telemetry.md");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let row =
            guide.lines().find(|row| row.starts_with(&format!("| `{name}` |"))).unwrap_or_else(|| panic!("{name}"));
        let known = row.split('|').nth(3).unwrap();
        let labels = labels.rsplit_once('}').map_or("", |(labels, _)| labels);
        for label in labels.split("\",").filter_map(|label| label.split('=').next()).filter(|label| !label.is_empty()) {
            assert!(label == "le" || known.contains(&format!("`{label}`")), "{line}: the guide has no {label}");
        }
    }
}
