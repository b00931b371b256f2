//! The example `webhooks`: deliveries that come twice, at once, and while the process dies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, Method};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::task::JoinSet;

use super::Engine;
use crate::support::service::{Client, Reply, Service};

/// A sender of events to one receiver.
#[derive(Clone)]
struct Sender {
    client: Client,
    address: String,
}

fn start(engine: &Engine, listen: &str, more: &[(&str, &str)]) -> Service {
    let url = engine.url();
    let variables = [&[("LISTEN", listen), ("DATABASE_URL", &url), ("RUST_LOG", "error")], more].concat();
    Service::example("webhooks", &variables)
}

fn event(kind: &str, payment: &str, amount: i64) -> String {
    json!({ "type": kind, "data": { "payment": payment, "amount": amount } }).to_string()
}

impl Sender {
    fn to(service: &Service) -> Self {
        Self { client: Client::new(), address: service.address.clone() }
    }

    async fn deliver(&self, id: &str, body: &str) -> Option<Reply> {
        self.deliver_with(&[("webhook-id", id)], body).await
    }

    async fn deliver_with(&self, headers: &[(&str, &str)], body: &str) -> Option<Reply> {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.client.send_with(Method::POST, &format!("http://{}/webhooks/psp", self.address), &headers, body).await
    }

    async fn get(&self, path: &str) -> Value {
        let reply = self.client.send(Method::GET, &format!("http://{}{path}", self.address), None, "").await.unwrap();
        assert_eq!(reply.status, 200);
        serde_json::from_slice(&reply.body).unwrap()
    }
}

fn status(reply: &Option<Reply>) -> u16 {
    reply.as_ref().map_or(0, |reply| reply.status.as_u16())
}

async fn an_event_is_applied_once(engine: Engine) {
    let service = start(&engine, "127.0.0.1:0", &[]);
    let sender = Sender::to(&service);
    let body = event("payment.settled", "p1", 100);
    for _ in 0..3 {
        assert_eq!(status(&sender.deliver("evt_1", &body).await), 200);
    }
    // Another event of the same payment.
    assert_eq!(status(&sender.deliver("evt_2", &body).await), 200);
    // Another body under a known id, if only by a blank.
    assert_eq!(status(&sender.deliver("evt_1", &format!("{body} ")).await), 409);
    // The bytes are compared, whatever they say.
    for other in ["", "{", r#"{"type": "payment.settled"}"#] {
        assert_eq!(status(&sender.deliver("evt_1", other).await), 409, "{other}");
    }
    // A failure leaves nothing and is run again.
    let fails = event("payment.fail", "p2", 7);
    for _ in 0..2 {
        assert_eq!(status(&sender.deliver("evt_3", &fails).await), 500);
    }
    assert_eq!(status(&sender.deliver("evt_4", r#"{"type": "customer.created"}"#).await), 200);
    for (id, body, expected) in [
        ("", &body[..], 400),
        ("evt_5", "{", 400),
        ("evt_5", r#"{"type": "payment.settled"}"#, 422),
        ("evt_5", r#"{"type": "payment.settled", "data": {"payment": "", "amount": 1}}"#, 422),
        // Postgres has no such text.
        ("evt_5", r#"{"type": "payment.settled", "data": {"payment": "p\u0000", "amount": 1}}"#, 422),
        ("evt_5", r#"{"type": "payment.settled", "data": {"payment": "p1", "amount": 1.5}}"#, 422),
    ] {
        assert_eq!(status(&sender.deliver(id, body).await), expected, "{id} {body}");
    }
    assert_eq!(status(&sender.deliver_with(&[], &body).await), 400);
    assert_eq!(status(&sender.deliver_with(&[("webhook-id", "a"), ("webhook-id", "b")], &body).await), 400);
    // What was refused can be delivered as it should be.
    assert_eq!(status(&sender.deliver("evt_5", &event("payment.settled", "p3", -5)).await), 200);
    assert_eq!(sender.get("/balances").await, json!({ "p1": 200, "p3": -5 }));
    let counts = json!({ "first": 4, "duplicate": 2, "busy": 0, "conflict": 4, "failed": 2 });
    assert_eq!(sender.get("/inbox").await, counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_applied_once_on_sqlite() {
    an_event_is_applied_once(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_applied_once_on_postgres() {
    an_event_is_applied_once(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_applied_once_on_mariadb() {
    an_event_is_applied_once(Engine::mysql().await).await;
}

async fn ids_are_compared_byte_for_byte(engine: Engine) {
    let service = start(&engine, "127.0.0.1:0", &[]);
    let sender = Sender::to(&service);
    // A field's value ends with no blank; the last two are one letter, composed and not.
    for (number, id) in ["A", "a", "a\u{a0}", "\u{e9}", "e\u{301}"].into_iter().enumerate() {
        let body = event("payment.settled", &format!("p{number}"), 1);
        assert_eq!(status(&sender.deliver(id, &body).await), 200, "{id}");
    }
    let counts = sender.get("/inbox").await;
    assert_eq!((&counts["first"], &counts["conflict"]), (&5.into(), &0.into()));
}

// M2
#[tokio::test(flavor = "multi_thread")]
async fn ids_are_compared_byte_for_byte_on_each_engine() {
    for engine in [Engine::sqlite(), Engine::postgres().await, Engine::mysql().await] {
        ids_are_compared_byte_for_byte(engine).await;
    }
}

/// A second delivery is told at once that the first one runs, and nobody else is kept waiting.
async fn a_running_event_is_busy_and_alone(engine: Engine) {
    let service = start(&engine, "127.0.0.1:0", &[]);
    let sender = Sender::to(&service);
    let slow = json!({ "type": "payment.slow", "data": { "payment": "p1", "amount": 1, "ms": 1500 } }).to_string();
    let first = tokio::spawn({
        let (sender, slow) = (sender.clone(), slow.clone());
        async move { sender.deliver("slow", &slow).await }
    });
    tokio::time::sleep(Duration::from_millis(400)).await;
    // The first request of a connection pays for it.
    sender.get("/inbox").await;
    let begin = Instant::now();
    let second = sender.deliver("slow", &slow).await.unwrap();
    let took = begin.elapsed();
    assert_eq!((second.status.as_u16(), &second.headers["retry-after"]), (503, &HeaderValue::from_static("1")));
    assert!(took < Duration::from_millis(100), "busy after {took:?}");
    // Busy outranks conflict.
    assert_eq!(status(&sender.deliver("slow", &event("payment.slow", "p1", 2)).await), 503);
    assert_eq!(status(&sender.deliver("slow", "{").await), 503);
    for n in 0..20 {
        assert_eq!(status(&sender.deliver(&format!("other-{n}"), &event("payment.settled", "p2", 1)).await), 200);
    }
    assert!(!first.is_finished(), "others waited for the slow event");
    assert_eq!(status(&first.await.unwrap()), 200);
    let begin = Instant::now();
    assert_eq!(status(&sender.deliver("slow", &slow).await), 200);
    assert!(begin.elapsed() < Duration::from_millis(1000), "a duplicate waits for nothing");
    assert_eq!(sender.get("/balances").await, json!({ "p1": 1, "p2": 20 }));
}

// M3
#[tokio::test(flavor = "multi_thread")]
async fn a_running_event_is_busy_and_alone_on_sqlite() {
    a_running_event_is_busy_and_alone(Engine::sqlite()).await;
}

// M3
#[tokio::test(flavor = "multi_thread")]
async fn a_running_event_is_busy_and_alone_on_postgres() {
    a_running_event_is_busy_and_alone(Engine::postgres().await).await;
}

// M3
#[tokio::test(flavor = "multi_thread")]
async fn a_running_event_is_busy_and_alone_on_mariadb() {
    a_running_event_is_busy_and_alone(Engine::mysql().await).await;
}

/// Delivers until it is accepted.
async fn insist(sender: &Sender, id: &str, body: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = sender.deliver(id, body).await;
        match status(&reply) {
            200 => return,
            0 | 503 => tokio::time::sleep(Duration::from_millis(20)).await,
            other => panic!("{id}: {other}"),
        }
        assert!(Instant::now() < until, "{id} was not accepted");
    }
}

async fn a_hundred_deliveries_of_twenty_events(engine: Engine) {
    let service = start(&engine, "127.0.0.1:0", &[]);
    let sender = Sender::to(&service);
    let mut running = JoinSet::new();
    for n in 0..100 {
        let sender = sender.clone();
        running.spawn(async move {
            let n = n % 20;
            insist(&sender, &format!("evt_{n}"), &event("payment.settled", &format!("p{}", n % 5), 1 << n)).await;
        });
    }
    running.join_all().await;
    let expected: BTreeMap<String, i64> =
        (0..5).map(|p| (format!("p{p}"), (0..4).map(|k| 1 << (p + 5 * k)).sum())).collect();
    assert_eq!(sender.get("/balances").await, json!(expected));
    let counts = sender.get("/inbox").await;
    assert_eq!((&counts["first"], &counts["duplicate"]), (&20.into(), &80.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_deliveries_of_twenty_events_apply_each_once_on_each_engine() {
    for engine in [Engine::sqlite(), Engine::postgres().await, Engine::mysql().await] {
        a_hundred_deliveries_of_twenty_events(engine).await;
    }
}

const KILLS: u32 = 9;
const LASTS: Duration = Duration::from_secs(12);

/// Every event is applied exactly once over kills at random moments.
async fn kills_under_load_apply_each_event_once(engine: Engine) {
    let mut service = start(&engine, "127.0.0.1:0", &[]);
    let sender = Sender::to(&service);
    let (next, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let accepted = Arc::new(Mutex::new(BTreeMap::<String, i64>::new()));
    let mut workers = JoinSet::new();
    for _ in 0..8 {
        let (sender, next, stop, accepted) = (sender.clone(), next.clone(), stop.clone(), accepted.clone());
        workers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let payment = format!("p{}", n % 7);
                let body = event("payment.settled", &payment, i64::from(n) + 1);
                // Once more than is needed.
                for _ in 0..2 {
                    insist(&sender, &format!("evt_{n}"), &body).await;
                }
                *accepted.lock().unwrap().entry(payment).or_default() += i64::from(n) + 1;
            }
        });
    }
    for kill in 0..KILLS {
        tokio::time::sleep(LASTS / (KILLS + 1) + Duration::from_millis(u64::from(kill * 37 % 100))).await;
        service.kill();
        service = start(&engine, &sender.address, &[]);
    }
    tokio::time::sleep(LASTS / (KILLS + 1)).await;
    stop.store(true, Ordering::Relaxed);
    workers.join_all().await;
    let events = next.load(Ordering::Relaxed);
    println!("{events} events, {KILLS} kills");
    assert_eq!(sender.get("/balances").await, json!(*accepted.lock().unwrap()));
    assert!(events > 50, "the test did not load the service");
    assert_eq!(service.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_apply_each_event_once_on_sqlite() {
    kills_under_load_apply_each_event_once(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_apply_each_event_once_on_postgres() {
    kills_under_load_apply_each_event_once(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_apply_each_event_once_on_mariadb() {
    kills_under_load_apply_each_event_once(Engine::mysql().await).await;
}

// Whatever is refused has a problem document.
#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_a_problem_document() {
    let service = start(&Engine::sqlite(), "127.0.0.1:0", &[]);
    let sender = Sender::to(&service);
    let large = "x".repeat((1 << 20) + 1);
    let body = event("payment.settled", "p1", 100);
    for (method, path, id, body, status) in [
        (Method::POST, "/webhooks/psp", "evt_1", &large[..], 413),
        (Method::GET, "/webhooks/psp", "evt_1", "", 405),
        (Method::DELETE, "/balances", "evt_1", "", 405),
        (Method::GET, "/nowhere", "evt_1", "", 404),
        (Method::POST, "/webhooks/psp", "", &body, 400),
        (Method::POST, "/webhooks/psp", "evt_1", "{", 400),
    ] {
        let what = format!("{method} {path} {status}");
        let url = format!("http://{}{path}", sender.address);
        let reply = sender.client.send_with(method, &url, &[("webhook-id", id)], body).await.unwrap();
        assert_eq!(reply.status.as_u16(), status, "{what}");
        assert_eq!(reply.headers["content-type"], "application/problem+json", "{what}");
        let problem: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((&problem["status"], &problem["type"]), (&status.into(), &"about:blank".into()), "{what}");
        // RFC 9110 section 15.5.6
        assert_eq!(reply.headers.contains_key("allow"), status == 405, "{what}");
    }
    // The largest body that is read, and nothing was taken up before.
    let mut largest = body.clone();
    largest.push_str(&" ".repeat((1 << 20) - body.len()));
    assert_eq!(status(&sender.deliver("evt_1", &largest).await), 200);
    assert_eq!(
        sender.get("/inbox").await,
        json!({ "first": 1, "duplicate": 0, "busy": 0, "conflict": 0, "failed": 0 })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsigned_event_is_not_looked_at() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let engine = Engine::sqlite();
    let service = start(&engine, "127.0.0.1:0", &[("WEBHOOK_SECRET", secret)]);
    let sender = Sender::to(&service);
    let body = event("payment.settled", "p1", 100);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let sign = |id: &str, time: i64, body: &str| Webhook::new(secret).unwrap().sign(id, time, body.as_bytes()).unwrap();
    let signed = async |id: &str, time: &str, signature: &str, body: &str| {
        let headers = [("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", signature)];
        status(&sender.deliver_with(&headers, body).await)
    };
    let stamp = now.to_string();
    let good = sign("evt_1", now, &body);
    assert_eq!(status(&sender.deliver("evt_1", &body).await), 401);
    assert_eq!(status(&sender.deliver("evt_1", "{").await), 401);
    // What has no id cannot have been signed, and is told what it lacks.
    assert_eq!(status(&sender.deliver("", &body).await), 400);
    assert_eq!(status(&sender.deliver_with(&[], &body).await), 400);
    assert_eq!(signed("evt_1", &stamp, &good, &event("payment.settled", "p1", 9999)).await, 401);
    assert_eq!(signed("evt_2", &stamp, &good, &body).await, 401);
    assert_eq!(signed("evt_1", &(now - 3600).to_string(), &sign("evt_1", now - 3600, &body), &body).await, 401);
    // Numbers at the edge are no reason to fall over.
    for time in [i64::MIN, -1, i64::MAX] {
        assert_eq!(signed("evt_1", &time.to_string(), &good, &body).await, 401, "{time}");
    }
    assert_eq!(sender.get("/balances").await, json!({}));
    assert_eq!(signed("evt_1", &stamp, &good, &body).await, 200);
    // A redelivery has another time and another signature.
    assert_eq!(signed("evt_1", &(now + 2).to_string(), &sign("evt_1", now + 2, &body), &body).await, 200);
    assert_eq!(sender.get("/inbox").await["duplicate"], 1);
}
