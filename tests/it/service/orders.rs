//! The example `orders`: an order and its event, over kills of the service and of relays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Engine;
use crate::support::service::{Client, Reply, Service};

/// What was published, in the order of the lines.
#[derive(Clone, Default)]
struct Published(Arc<Mutex<Vec<Value>>>);

impl Published {
    fn collect(&self) -> impl FnMut(String) + Send + 'static {
        let published = Arc::clone(&self.0);
        move |line| {
            // A process that is killed may leave half a line: that event was not acked.
            if let Ok(event) = serde_json::from_str(&line) {
                published.lock().unwrap().push(event);
            }
        }
    }

    fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }

    async fn wait_for(&self, number: usize, limit: Duration) {
        let until = Instant::now() + limit;
        while self.0.lock().unwrap().len() < number {
            assert!(Instant::now() < until, "{} of {number} events after {limit:?}", self.0.lock().unwrap().len());
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn start(engine: &Engine, listen: &str, more: &[(&str, &str)], published: &Published) -> Service {
    let url = engine.url();
    let variables = [&[("LISTEN", listen), ("DATABASE_URL", &url)], more].concat();
    Service::example_into("orders", &[], &variables, published.collect())
}

fn relay(engine: &Engine, published: &Published) -> Service {
    let url = engine.url();
    Service::worker("orders", &["relay"], &[("DATABASE_URL", &url)], published.collect())
}

async fn order(client: &Client, address: &str, key: &str, customer: &str) -> Option<Reply> {
    let body = json!({ "customer": customer, "sku": "s1", "quantity": 2 }).to_string();
    client.send(Method::POST, &format!("http://{address}/orders"), Some(key), &body).await
}

async fn outbox(client: &Client, address: &str) -> Value {
    let reply = client.send(Method::GET, &format!("http://{address}/outbox"), None, "").await.unwrap();
    assert_eq!(reply.status, 200);
    serde_json::from_slice(&reply.body).unwrap()
}

async fn settled(client: &Client, address: &str, member: &str, number: u64) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let stats = outbox(client, address).await;
        if stats[member] == number {
            return stats;
        }
        assert!(Instant::now() < until, "{member} is not {number}: {stats}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn an_order_has_one_event(engine: Engine) {
    let published = Published::default();
    let service = start(&engine, "127.0.0.1:0", &[], &published);
    let (client, address) = (Client::new(), service.address.clone());
    let placed = order(&client, &address, "k1", "c1").await.unwrap();
    assert_eq!(placed.status, 201);
    let body: Value = serde_json::from_slice(&placed.body).unwrap();
    assert_eq!((&body["customer"], &body["n"]), (&"c1".into(), &1.into()));
    let again = order(&client, &address, "k1", "c1").await.unwrap();
    assert!(again.is_replay() && again.body == placed.body);
    assert_eq!(order(&client, &address, "k2", "c1").await.unwrap().status, 201);
    published.wait_for(2, Duration::from_secs(20)).await;
    let stats = settled(&client, &address, "pending", 0).await;
    let nothing = json!({ "pending": 0, "oldest_age_seconds": null, "failing": 0, "blocked": 0, "dead": 0 });
    assert_eq!(stats, nothing);
    let events = published.all();
    assert_eq!(events.len(), 2, "{events:?}");
    for (n, event) in (1..).zip(&events) {
        assert_eq!(event["specversion"], "1.0");
        assert_eq!((&event["type"], &event["subject"]), (&"order.placed".into(), &"c1".into()));
        assert_eq!(event["datacontenttype"], "application/json");
        assert_eq!(event["data"], json!({ "customer": "c1", "sku": "s1", "quantity": 2, "n": n }));
        assert!(event["id"].is_string() && event["source"].is_string() && event["time"].is_string());
    }
    let status = async |key: Option<&str>, body: &str| {
        let url = format!("http://{address}/orders");
        client.send(Method::POST, &url, key, body).await.unwrap().status
    };
    assert_eq!(status(None, "{}").await, 400);
    assert_eq!(status(Some("k3"), "{").await, 400);
    assert_eq!(status(Some("k3"), r#"{"customer": "", "sku": "s1", "quantity": 1}"#).await, 422);
    assert_eq!(status(Some("k3"), r#"{"customer": "c1", "sku": "s1", "quantity": 0}"#).await, 422);
    assert_eq!(service.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_has_one_event_on_sqlite() {
    an_order_has_one_event(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_has_one_event_on_postgres() {
    an_order_has_one_event(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_has_one_event_on_mariadb() {
    an_order_has_one_event(Engine::mysql().await).await;
}

/// What is left by a process without a relay, or by a killed one, is published by the next within this time.
async fn a_backlog_is_relayed_soon(engine: Engine, soon: Duration) {
    let published = Published::default();
    let service = start(&engine, "127.0.0.1:0", &[("RELAY", "off")], &published);
    let (client, address) = (Client::new(), service.address.clone());
    for n in 0..20 {
        assert_eq!(order(&client, &address, &format!("k{n}"), "c1").await.unwrap().status, 201);
    }
    let stats = outbox(&client, &address).await;
    assert_eq!(stats["pending"], 20);
    assert!(stats["oldest_age_seconds"].as_f64().unwrap() > 0.0);
    service.kill();
    // A relay that is killed while it owns everything.
    let first = start(&engine, &address, &[], &published);
    published.wait_for(20, soon).await;
    first.kill();
    let second = start(&engine, &address, &[], &published);
    let since = Instant::now();
    assert_eq!(order(&client, &address, "late", "c1").await.unwrap().status, 201);
    // What the killed one had not deleted comes again, so the number of events says nothing.
    while !published.all().iter().any(|event| event["data"]["n"] == 21) {
        assert!(since.elapsed() < soon, "{:?}", published.all());
        sleep(Duration::from_millis(10)).await;
    }
    println!("relayed {:?} after the restart", since.elapsed());
    // Every number of the customer, its first occurrences in order.
    let mut seen = BTreeSet::new();
    let firsts: Vec<u64> =
        published.all().iter().filter_map(|event| event["data"]["n"].as_u64()).filter(|n| seen.insert(*n)).collect();
    assert_eq!(firsts, (1..=21).collect::<Vec<_>>());
    drop(second);
}

// case B12
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_relayed_within_two_seconds_on_sqlite() {
    a_backlog_is_relayed_soon(Engine::sqlite(), Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_relayed_within_a_lease_on_postgres() {
    a_backlog_is_relayed_soon(Engine::postgres().await, Duration::from_secs(15)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_relayed_within_a_lease_on_mariadb() {
    a_backlog_is_relayed_soon(Engine::mysql().await, Duration::from_secs(15)).await;
}

/// No event is lost and none invented, over kills of the service and of a second relay. At most a window an owner comes
/// twice at each kill (M40).
async fn kills_lose_and_invent_no_event(engine: Engine, kills: u32) {
    let published = Published::default();
    let mut service = start(&engine, "127.0.0.1:0", &[], &published);
    let mut other = relay(&engine, &published);
    let (client, address) = (Client::new(), service.address.clone());
    let (next, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let placed = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
    let mut workers = JoinSet::new();
    for worker in 0..6 {
        let (client, address, next, stop, placed) =
            (client.clone(), address.clone(), next.clone(), stop.clone(), placed.clone());
        workers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let customer = format!("c{}", (n + worker) % 7);
                let until = Instant::now() + Duration::from_secs(60);
                loop {
                    match order(&client, &address, &format!("operation-{n}"), &customer).await {
                        Some(reply) if reply.status == 201 => break,
                        Some(reply) if reply.status == 409 || reply.status == 503 => {}
                        Some(reply) => panic!("operation {n}: {reply:?}"),
                        None => {}
                    }
                    assert!(Instant::now() < until, "operation {n} got no answer");
                    sleep(Duration::from_millis(20)).await;
                }
                *placed.lock().unwrap().entry(customer).or_default() += 1;
            }
        });
    }
    for kill in 0..kills {
        // Not in step with anything.
        sleep(Duration::from_millis(700 + u64::from(kill * 137 % 400))).await;
        if kill % 2 == 0 {
            service.kill();
            service = start(&engine, &address, &[], &published);
        } else {
            other.kill();
            other = relay(&engine, &published);
        }
    }
    sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    workers.join_all().await;
    settled(&client, &address, "pending", 0).await;
    // The last line is on its way to us.
    sleep(Duration::from_millis(300)).await;
    let placed = placed.lock().unwrap().clone();
    let events = published.all();
    let mut numbers: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut ids: BTreeMap<(String, u64), BTreeSet<String>> = BTreeMap::new();
    for event in &events {
        let (customer, n) = (event["subject"].as_str().unwrap().to_owned(), event["data"]["n"].as_u64().unwrap());
        numbers.entry(customer.clone()).or_default().insert(n);
        ids.entry((customer, n)).or_default().insert(event["id"].as_str().unwrap().to_owned());
    }
    let orders: u64 = placed.values().sum();
    let repeated = events.len() as u64 - orders.min(events.len() as u64);
    println!("{orders} orders, {kills} kills, {} events, {repeated} repeated", events.len());
    let expected: BTreeMap<String, BTreeSet<u64>> =
        placed.into_iter().map(|(customer, orders)| (customer, (1..=orders).collect())).collect();
    assert_eq!(numbers, expected, "events and orders differ");
    assert!(ids.values().all(|ids| ids.len() == 1), "one event under two ids");
    assert!(repeated <= u64::from(kills) * 2 * 256, "{repeated} events came twice");
    assert!(orders > 50, "the test did not load the service");
    drop(other);
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_and_invent_no_event_on_sqlite() {
    kills_lose_and_invent_no_event(Engine::sqlite(), 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_and_invent_no_event_on_postgres() {
    kills_lose_and_invent_no_event(Engine::postgres().await, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_and_invent_no_event_on_mariadb() {
    kills_lose_and_invent_no_event(Engine::mysql().await, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_to_each_broker() {
    for variable in ["NATS_URL", "AMQP_URL", "REDIS_URL"] {
        let events = std::env::var(variable).unwrap();
        let engine = Engine::sqlite();
        let service = start(&engine, "127.0.0.1:0", &[("EVENTS", &events)], &Published::default());
        let client = Client::new();
        assert_eq!(order(&client, &service.address, "k1", "c1").await.unwrap().status, 201);
        let stats = settled(&client, &service.address, "pending", 0).await;
        assert_eq!((&stats["failing"], &stats["dead"]), (&0.into(), &0.into()), "{variable}");
    }
}

// M35: what an endpoint refuses for good holds up its customer, until a person decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_waits_for_a_person() {
    let got = Arc::new(Mutex::new(Vec::<Value>::new()));
    let seen = Arc::clone(&got);
    let endpoint = Router::new().fallback(post(async move |body: Bytes| {
        let event: Value = serde_json::from_slice(&body).unwrap();
        let refused = event["subject"] == "bad" && event["data"]["n"] == 1;
        seen.lock().unwrap().push(event);
        if refused { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::NO_CONTENT }
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let events = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, endpoint).await });
    let engine = Engine::sqlite();
    let service = start(&engine, "127.0.0.1:0", &[("EVENTS", &events)], &Published::default());
    let (client, address) = (Client::new(), service.address.clone());
    for (key, customer) in [("k1", "bad"), ("k2", "bad"), ("k3", "good")] {
        assert_eq!(order(&client, &address, key, customer).await.unwrap().status, 201);
    }
    settled(&client, &address, "blocked", 1).await;
    // The other customer is served.
    settled(&client, &address, "pending", 2).await;
    let id = got.lock().unwrap()[0]["id"].as_str().unwrap().to_owned();
    let decide = async |what: &str| {
        let url = format!("http://{address}/outbox/dead/{what}");
        client.send(Method::POST, &url, None, "").await.unwrap().status
    };
    assert_eq!(decide("00000000-0000-0000-0000-000000000000/redrive").await, 404);
    assert_eq!(decide("no-id/discard").await, 404);
    // It is refused again.
    assert_eq!(decide(&format!("{id}/redrive")).await, 204);
    settled(&client, &address, "blocked", 1).await;
    assert_eq!(decide(&format!("{id}/discard")).await, 204);
    settled(&client, &address, "pending", 0).await;
    assert_eq!(outbox(&client, &address).await["blocked"], 0);
    let good = got.lock().unwrap().iter().filter(|event| event["data"]["n"] == 2 || event["subject"] == "good").count();
    assert_eq!(good, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_taken_while_the_broker_is_away() {
    for events in ["nats://127.0.0.1:1", "amqp://127.0.0.1:1", "redis://127.0.0.1:1", "http://127.0.0.1:1"] {
        let engine = Engine::sqlite();
        let published = Published::default();
        let service = start(&engine, "127.0.0.1:0", &[("EVENTS", events)], &published);
        let (client, address) = (Client::new(), service.address.clone());
        assert_eq!(order(&client, &address, "k1", "c1").await.unwrap().status, 201, "{events}");
        sleep(Duration::from_millis(1200)).await;
        let stats = outbox(&client, &address).await;
        assert_eq!(
            (&stats["pending"], &stats["dead"], &stats["blocked"]),
            (&1.into(), &0.into(), &0.into()),
            "{events}"
        );
        assert_eq!(service.terminate(), Some(0), "{events}");
        // The next process finds it.
        let _service = start(&engine, "127.0.0.1:0", &[], &published);
        published.wait_for(1, Duration::from_secs(10)).await;
    }
}
