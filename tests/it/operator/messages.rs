//! Events and marks of messages: what a person looks at and decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idempotency::OutboxDialect;
use idempotency::inbox::{Inbox, InboxDialect, Message, MessageId, Processed};
use idempotency::outbox::publish::{Answer, Reason};
use idempotency::outbox::relay::{Delivery, Relay};
use idempotency::outbox::{Event, Outbox};
use idempotency::testing::relay::Broker;
use serde_json::{Value, json};
use sqlx::{Database, Executor, IntoArguments, Pool};
use tokio::sync::oneshot;

use super::{code, json, text, tool};
use crate::service::Engine;

fn exactly(number: u64) -> Value {
    json!({ "count": number, "is": "exact" })
}

/// Longer than relays take to notice a pause.
const NOTICED: Duration = Duration::from_secs(7);

/// A relay of this process; the tool is always another one.
struct Relaying {
    broker: Broker,
    /// Whether it takes events of the topic `bad`.
    lenient: Arc<AtomicBool>,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<()>,
}

impl Relaying {
    fn start<DB: OutboxDialect>(outbox: &Outbox<DB>) -> Self {
        let (broker, lenient) = (Broker::new(), Arc::new(AtomicBool::new(false)));
        let takes = Arc::clone(&lenient);
        let judged = broker.judged(move |event| {
            let refused = event.event().topic() == "bad" && !takes.load(Ordering::Relaxed);
            async move { refused.then_some(Answer::never(Reason::Rejected)) }
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = Relay::new(outbox.clone()).publisher_with("broker", judged, Delivery::new());
        let running = tokio::spawn(async move {
            relay.run(async { drop(stopped.await) }).await.unwrap();
        });
        Self { broker, lenient, stop, running }
    }

    async fn stop(self) {
        drop(self.stop);
        self.running.await.unwrap();
    }

    async fn has(&self, events: usize) {
        for _ in 0..300 {
            if self.broker.events() >= events {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} of {events} events", self.broker.events());
    }
}

fn event(topic: &str, key: Option<&str>) -> Event {
    let event = Event::new("broker", topic, "order.placed", "/orders").bytes("{}");
    match key {
        Some(key) => event.key(key),
        None => event,
    }
}

async fn enqueue<DB: OutboxDialect>(pool: &Pool<DB>, outbox: &Outbox<DB>, events: &[Event]) {
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue_all(&mut tx, events).await.unwrap();
    tx.commit().await.unwrap();
    outbox.wake();
}

/// The tool's answer to a change, as JSON.
fn told(url: &str, arguments: &[&str]) -> (i32, Value) {
    let output = tool(url, &[&["--yes", "--json"], arguments].concat());
    (code(&output), json(&output))
}

async fn until(url: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..200 {
        let (code, seen) = told(url, &["outbox", "stats"]);
        assert_eq!(code, 0);
        if holds(&seen) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", told(url, &["outbox", "stats"]));
}

fn ids(listed: &Value) -> Vec<&str> {
    listed.as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect()
}

// M35: blocked events and dead letters wait for a person.
async fn events_are_looked_after<DB: OutboxDialect>(pool: Pool<DB>, url: &str) {
    assert_eq!(code(&tool(url, &["outbox", "stats"])), 4, "without tables");
    assert_eq!(code(&tool(url, &["--yes", "migrate"])), 0);
    let outbox = Outbox::new(pool.clone()).await.unwrap();
    let empty = told(url, &["outbox", "stats"]).1;
    assert_eq!((&empty["pending"], &empty["dead"], &empty["paused"]), (&exactly(0), &exactly(0), &json!([])));
    assert_eq!(told(url, &["outbox", "list"]), (1, json!([])));
    let relay = Relaying::start(&outbox);
    let bad = event("bad", None);
    enqueue(&pool, &outbox, &[event("bad", Some("c1")), bad.clone(), bad.clone(), bad, event("good", None)]).await;
    let seen = until(url, |seen| seen["blocked"] == exactly(1) && seen["dead"] == exactly(3)).await;
    assert_eq!((&seen["pending"], &seen["failing"], &seen["deferred"]), (&exactly(1), &exactly(0), &exactly(0)));
    assert!(seen["oldest_age_seconds"].as_f64().unwrap() > 0.0);

    let blocked = told(url, &["outbox", "list"]).1;
    assert_eq!(
        (&blocked[0]["state"], &blocked[0]["key"], &blocked[0]["attempts"]),
        (&"blocked".into(), &"c1".into(), &1.into())
    );
    let human = text(&tool(url, &["outbox", "list"]));
    assert!(human.starts_with("blocked ") && human.contains("of key \"c1\" for \"broker\"; 1 attempt,"), "{human}");
    let (listed, dead) = told(url, &["outbox", "list", "--dead", "--destination", "broker", "--topic", "bad"]);
    assert_eq!((listed, dead.as_array().unwrap().len(), &dead[0]["state"]), (0, 3, &"dead".into()));
    assert_eq!(told(url, &["outbox", "list", "--dead", "--limit", "2"]).1.as_array().unwrap().len(), 2);
    for other in
        [["--destination", "other"], ["--topic", "good"], ["--type", "x"], ["--key", "c1"], ["--older-than", "1d"]]
    {
        assert_eq!(told(url, &[&["outbox", "list", "--dead"], &other[..]].concat()), (1, json!([])), "{other:?}");
        assert_eq!(told(url, &[&["outbox", "redrive", "--dry-run"], &other[..]].concat()), (1, json!({ "dead": 0 })));
        assert_eq!(told(url, &[&["outbox", "discard"], &other[..]].concat()), (1, json!({ "discarded": 0 })));
    }

    // Nothing changes before somebody has said yes, nor for an id that is nothing here.
    let dead = ids(&dead);
    let asked = tool(url, &["outbox", "discard", dead[0]]);
    assert_eq!(code(&asked), 3, "{}", text(&asked));
    assert!(text(&asked).contains("Drop 1 event for good? [y/N]"), "{}", text(&asked));
    let asked = tool(url, &["outbox", "redrive", "--all"]);
    assert_eq!(
        (code(&asked), text(&asked).contains("Publish 3 dead letters anew? [y/N]")),
        (3, true),
        "{}",
        text(&asked)
    );
    let stranger = uuid::Uuid::new_v4().to_string();
    assert_eq!(told(url, &["outbox", "redrive", &stranger]), (1, json!({ "redriven": 0, "unknown": [stranger] })));
    assert_eq!(told(url, &["outbox", "redrive", "--dry-run", "--type", "order.placed"]), (0, json!({ "dead": 3 })));
    assert_eq!(told(url, &["outbox", "stats"]).1["dead"], exactly(3));

    // One is dropped, one has an id that is known and one that is not.
    assert_eq!(told(url, &["outbox", "discard", dead[0]]), (0, json!({ "discarded": 1, "unknown": [] })));
    let both = told(url, &["outbox", "discard", dead[0], dead[1], dead[1]]);
    assert_eq!(both, (1, json!({ "discarded": 1, "unknown": [dead[0]] })));
    relay.lenient.store(true, Ordering::Relaxed);
    relay.has(1).await;
    let human = tool(url, &["--yes", "outbox", "redrive", "--all"]);
    assert_eq!((code(&human), &*text(&human)), (0, "1 dead letter redriven\n"));
    relay.has(2).await;
    assert_eq!(told(url, &["outbox", "redrive", ids(&blocked)[0]]), (0, json!({ "redriven": 1, "unknown": [] })));
    relay.has(3).await;
    until(url, |seen| ["pending", "blocked", "dead"].iter().all(|name| seen[name] == exactly(0))).await;

    // A blocked event that is dropped lets its key go on.
    relay.lenient.store(false, Ordering::Relaxed);
    enqueue(&pool, &outbox, &[event("bad", Some("c2")), event("good", Some("c2"))]).await;
    until(url, |seen| seen["blocked"] == exactly(1)).await;
    let blocked = told(url, &["outbox", "list"]).1;
    assert_eq!(told(url, &["outbox", "discard", ids(&blocked)[0]]).0, 0);
    relay.has(4).await;
    relay.stop().await;
}

// M40: a pause is a row that every relay reads, and a restart does not end it.
async fn a_pause_holds_relays_of_other_processes<DB: OutboxDialect>(pool: Pool<DB>, url: &str) {
    assert_eq!(code(&tool(url, &["--yes", "migrate"])), 0);
    let outbox = Outbox::new(pool.clone()).await.unwrap();
    let mut relay = Relaying::start(&outbox);
    enqueue(&pool, &outbox, &[event("t", None)]).await;
    relay.has(1).await;
    assert_eq!(told(url, &["outbox", "resume", "broker"]).0, 1, "nothing is paused");
    let asked = tool(url, &["outbox", "pause", "broker"]);
    assert_eq!(
        (code(&asked), text(&asked).contains("Hold back all events for \"broker\"")),
        (3, true),
        "{}",
        text(&asked)
    );
    assert_eq!(told(url, &["outbox", "stats"]).1["paused"], json!([]));
    for _ in 0..2 {
        assert_eq!(told(url, &["outbox", "pause", "broker"]), (0, json!({ "paused": true })));
    }
    assert_eq!(told(url, &["outbox", "pause", "broker", "--key", "c1"]).0, 0);
    tokio::time::sleep(NOTICED).await;
    enqueue(&pool, &outbox, &[event("t", None), event("t", Some("c1"))]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(relay.broker.events(), 1);
    relay.stop().await;
    relay = Relaying::start(&outbox);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(relay.broker.events(), 0);
    let seen = told(url, &["outbox", "stats"]).1;
    let paused = json!([{ "destination": "broker", "key": null }, { "destination": "broker", "key": "c1" }]);
    assert_eq!((&seen["pending"], &seen["paused"]), (&exactly(2), &paused));
    let human = text(&tool(url, &["outbox", "stats"]));
    assert!(human.contains("paused     events of key \"c1\" for \"broker\""), "{human}");
    // The key stays paused by itself.
    assert_eq!(told(url, &["outbox", "resume", "broker"]), (0, json!({ "resumed": true })));
    assert_eq!(told(url, &["outbox", "resume", "broker", "--key", "c2"]).0, 1);
    relay.has(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(relay.broker.events(), 1);
    assert_eq!(told(url, &["outbox", "resume", "broker", "--key", "c1"]).0, 0);
    relay.has(2).await;
    relay.stop().await;
}

// M2, M8: marks of each consumer, and those whose retention has ended.
async fn marks_are_counted<DB>(pool: Pool<DB>, url: &str, expire: &'static str)
where
    DB: InboxDialect,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    <DB as Database>::Arguments: IntoArguments<DB>,
{
    assert_eq!(code(&tool(url, &["inbox", "stats"])), 4, "without tables");
    assert_eq!(code(&tool(url, &["--yes", "migrate"])), 0);
    for (consumer, messages) in [("mail", 1), ("billing", 3)] {
        let inbox = Inbox::new(pool.clone(), consumer).await.unwrap();
        for n in 0..messages {
            let message = Message::new(MessageId::new("orders", format!("evt_{n}")).unwrap(), b"{}");
            let done = inbox.process(&message, async |_| Ok::<(), sqlx::Error>(())).await.unwrap();
            assert!(matches!(done, Processed::First(())));
        }
        inbox.record_failure(&MessageId::new("orders", "failed").unwrap()).await.unwrap();
    }
    let consumers = json!([{ "name": "billing", "marks": exactly(3) }, { "name": "mail", "marks": exactly(1) }]);
    for exact in [&["inbox", "stats"][..], &["inbox", "stats", "--exact"]] {
        let (code, seen) = told(url, exact);
        assert_eq!((code, &seen["marks"], &seen["expired"]), (0, &exactly(4), &exactly(0)), "{seen}");
        assert_eq!((&seen["failing"], &seen["overdue_seconds"]), (&exactly(2), &Value::Null), "{seen}");
        assert_eq!(seen["consumers"], consumers);
    }
    sqlx::query(expire).execute(&mut *pool.acquire().await.unwrap()).await.unwrap();
    let seen = told(url, &["inbox", "stats"]).1;
    assert_eq!((&seen["marks"], &seen["expired"]), (&exactly(4), &exactly(3)), "{seen}");
    assert!(seen["overdue_seconds"].as_f64().unwrap() > 0.0, "{seen}");
    let human = text(&tool(url, &["inbox", "stats"]));
    assert!(human.contains("expired    3, the longest for") && human.contains("consumer   \"mail\": 1\n"), "{human}");
}

const EXPIRE: &str = "UPDATE idempotency_inbox SET expires_at = accepted_at WHERE id <> 'evt_2'";
const EXPIRE_BYTES: &str = "UPDATE idempotency_inbox SET expires_at = accepted_at WHERE id <> CAST('evt_2' AS BLOB)";

async fn sqlite(engine: &Engine) -> sqlx::SqlitePool {
    let url = engine.url();
    let options = idempotency::SqliteStore::connect_options(url.trim_start_matches("sqlite:"));
    sqlx::sqlite::SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
}

// A connection that is made while another one has the file for itself waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_a_file_that_somebody_opens() {
    let engine = Engine::sqlite();
    let url = engine.url();
    assert_eq!(code(&tool(&url, &["--yes", "migrate"])), 0);
    let pool = sqlite(&engine).await;
    let outbox = Outbox::new(pool.clone()).await.unwrap();
    // The outbox has connections of its own, and none yet.
    pool.close().await;
    let options = idempotency::SqliteStore::connect_options(url.trim_start_matches("sqlite:"));
    let options = options.locking_mode(sqlx::sqlite::SqliteLockingMode::Exclusive);
    let mut alone = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::query("CREATE TABLE host (n)").execute(&mut alone).await.unwrap();
    let other = tool(&url, &["outbox", "stats"]);
    assert_eq!(code(&other), 4, "the file is another one's: {}", text(&other));
    let opened = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sqlx::Connection::close(alone).await.unwrap();
    });
    outbox.pause("broker").await.unwrap();
    opened.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_looked_after_on_sqlite() {
    let engine = Engine::sqlite();
    events_are_looked_after(sqlite(&engine).await, &engine.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_looked_after_on_postgres() {
    let url = Engine::postgres().await.url();
    events_are_looked_after(sqlx::PgPool::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_looked_after_on_mariadb() {
    let url = Engine::mysql().await.url();
    events_are_looked_after(sqlx::MySqlPool::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_relays_of_other_processes_on_sqlite() {
    let engine = Engine::sqlite();
    a_pause_holds_relays_of_other_processes(sqlite(&engine).await, &engine.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_relays_of_other_processes_on_postgres() {
    let url = Engine::postgres().await.url();
    a_pause_holds_relays_of_other_processes(sqlx::PgPool::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_relays_of_other_processes_on_mariadb() {
    let url = Engine::mysql().await.url();
    a_pause_holds_relays_of_other_processes(sqlx::MySqlPool::connect(&url).await.unwrap(), &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_counted_on_sqlite() {
    let engine = Engine::sqlite();
    marks_are_counted(sqlite(&engine).await, &engine.url(), EXPIRE_BYTES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_counted_on_postgres() {
    let url = Engine::postgres().await.url();
    marks_are_counted(sqlx::PgPool::connect(&url).await.unwrap(), &url, EXPIRE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_counted_on_mariadb() {
    let url = Engine::mysql().await.url();
    marks_are_counted(sqlx::MySqlPool::connect(&url).await.unwrap(), &url, EXPIRE).await;
}
