//! A relay as a process: this test binary, started again.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotency::outbox::publish::{Answer, NatsPublisher, Publisher, Publishing, Reason};
use idempotency::outbox::relay::{Delivery, Relay};
use idempotency::outbox::{Outbox, PendingEvent};
use idempotency::{OutboxDialect, SqliteStore};
use serde::{Deserialize, Serialize};
use sqlx::Executor;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::io::AsyncReadExt;

use crate::support::{mysql, postgres};

const VARIABLE: &str = "IDEMPOTENCY_TEST_RELAY";

/// What the process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    pub engine: String,
    pub place: String,
    pub name: String,
    pub log: Log,
    pub window: usize,
    pub window_per_key: usize,
    pub lease: Duration,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Log {
    File(String),
    Nats(String),
}

pub fn session_name(place: &str) -> String {
    format!("relays-{place}")
}

/// Starts one. It ends in order when its standard input ends.
pub fn start(orders: &Orders) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["relay::order::child::process", "--exact", "--nocapture"])
        .env(VARIABLE, serde_json::to_string(orders).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Nothing, unless it was started as a relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let Ok(orders) = std::env::var(VARIABLE) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    match orders.engine.as_str() {
        "postgres" => {
            let options = postgres::options().options([("search_path", orders.place.as_str())]);
            let options = options.application_name(&session_name(&orders.place));
            let pool = sqlx::postgres::PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
            relay(Outbox::new(pool).await.unwrap(), orders).await;
        }
        "mysql" => {
            let options = mysql::options().database(&orders.place);
            let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(4).after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute("REPLACE INTO relay_sessions VALUES (CONNECTION_ID())").await.map(drop)
                })
            });
            relay(Outbox::new(pool.connect_lazy_with(options)).await.unwrap(), orders).await;
        }
        _ => {
            let options = SqliteStore::connect_options(&orders.place);
            let pool = SqlitePoolOptions::new().max_connections(4).connect_lazy_with(options);
            relay(Outbox::new(pool).await.unwrap(), orders).await;
        }
    }
}

async fn relay<DB: OutboxDialect>(outbox: Outbox<DB>, orders: Orders) {
    let publisher: Box<dyn Publisher> = match &orders.log {
        Log::File(path) => Box::new(AppendTo(Mutex::new(OpenOptions::new().append(true).open(path).unwrap()))),
        Log::Nats(url) => {
            let publisher = NatsPublisher::connect(url).await.unwrap();
            Box::new(publisher.deadline(Duration::from_secs(1)))
        }
    };
    let delivery = Delivery::new()
        .attempts(1_000_000)
        .retry_after(Duration::from_millis(5), Duration::from_millis(100))
        .outage_retry_after(Duration::from_millis(10), Duration::from_millis(200))
        .window_per_key(orders.window_per_key);
    let once = RefusesOnce { inner: publisher, refused: Mutex::default() };
    let relay = Relay::new(outbox)
        .name(&orders.name)
        .publisher_with("broker", once, delivery)
        .window(orders.window, 1 << 24)
        .publish_timeout(Duration::from_secs(2))
        .poll_idle(Duration::from_millis(100))
        .lease(orders.lease);
    let end = async {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    // Another process of this name has begun after this one was stalled: then it is over too.
    let _ = relay.run(end).await;
}

/// Appends a line per event: the key and the payload.
struct AppendTo(Mutex<File>);

impl Publisher for AppendTo {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move {
            // A little time, so that something is out.
            tokio::time::sleep(Duration::from_millis(u64::from(event.id().as_bytes()[15] % 4))).await;
            let payload = String::from_utf8_lossy(event.event().payload_ref()).into_owned();
            let line = format!("{} {payload}\n", event.event().key_ref().unwrap());
            // One write of one line: whole or not at all.
            self.0.lock().unwrap().write_all(line.as_bytes()).unwrap();
            Answer::ACKED
        })
    }
}

/// Refuses one event in ten, once a process.
struct RefusesOnce {
    inner: Box<dyn Publisher>,
    refused: Mutex<HashSet<uuid::Uuid>>,
}

impl Publisher for RefusesOnce {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        let unlucky = event.id().as_u128().is_multiple_of(10);
        if unlucky && self.refused.lock().unwrap().insert(event.id()) {
            return Box::pin(async { Answer::refused(Reason::Rejected) });
        }
        self.inner.publish(event)
    }
}
