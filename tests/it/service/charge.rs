//! The example `charge`: processes that die between calls to a network which outlives them.

use std::time::{Duration, Instant};

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::redis;
use crate::support::service::{Client, Reply, Service};

const OPERATOR: (&str, &str) = ("authorization", "Bearer judge");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A network, a file of orders, a caller with a name of its own (others use the same servers).
struct Place {
    folder: tempfile::TempDir,
    network: Service,
    keys: String,
    lease: &'static str,
    client: Client,
    caller: String,
}

impl Place {
    fn new(keys: &str, lease: &'static str) -> Self {
        let caller = uuid::Uuid::new_v4().to_string();
        Self {
            folder: tempfile::tempdir().unwrap(),
            network: Service::example_with("charge", &["network"], &[("LISTEN", "127.0.0.1:0")]),
            keys: keys.to_owned(),
            lease,
            client: Client::named(&caller),
            caller,
        }
    }

    fn start(&self, listen: &str) -> Service {
        self.start_with(listen, &format!("http://{}", self.network.address))
    }

    fn start_with(&self, listen: &str, network: &str) -> Service {
        let url = format!("sqlite:{}", self.folder.path().join("charge.sqlite").display());
        Service::example(
            "charge",
            &[
                ("LISTEN", listen),
                ("DATABASE_URL", &url),
                ("NETWORK", network),
                ("KEYS", &self.keys),
                ("LEASE", self.lease),
                ("OPERATOR", "judge"),
            ],
        )
    }

    async fn post(&self, service: &str, path: &str, key: &str, card: &str) -> Option<Reply> {
        let body = json!({ "amount": 1250, "card": card }).to_string();
        self.client.send(Method::POST, &format!("http://{service}{path}"), Some(key), &body).await
    }

    /// Sends the request again until it is told something that stays.
    async fn retry(&self, service: &str, path: &str, key: &str, card: &str) -> Reply {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let reply = self.post(service, path, key, card).await.expect("an answer");
            if reply.status != 409 || !reply.headers.contains_key("retry-after") {
                return reply;
            }
            assert!(Instant::now() < until, "nobody followed: {reply:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn get(&self, url: &str) -> Value {
        let reply = self.client.send(Method::GET, &format!("http://{url}"), None, "").await.unwrap();
        assert_eq!(reply.status, 200);
        serde_json::from_slice(&reply.body).unwrap()
    }

    async fn ledger(&self) -> Value {
        self.get(&format!("{}/ledger", self.network.address)).await
    }

    async fn rows(&self, service: &str, path: &str) -> Vec<Value> {
        self.get(&format!("{service}{path}")).await.as_array().unwrap().clone()
    }

    /// This caller's entry in the operator's list.
    async fn stuck(&self, service: &str, key: &str) -> Option<Value> {
        let url = format!("http://{service}/stuck");
        let reply = self.client.send_with(Method::GET, &url, &[OPERATOR], "").await.unwrap();
        assert_eq!(reply.status, 200);
        let entries: Vec<Value> = serde_json::from_slice(&reply.body).unwrap();
        entries.into_iter().find(|entry| entry["scope"] == self.caller.as_str() && entry["key"] == key)
    }

    async fn operate(&self, service: &str, entry: &Value, what: &str, body: &Value) -> u16 {
        let url = format!("http://{service}/stuck/{}/{what}", entry["id"].as_str().unwrap());
        let reply = self.client.send_with(Method::POST, &url, &[OPERATOR, JSON], &body.to_string()).await.unwrap();
        reply.status.as_u16()
    }
}

/// The last part of the problem's type.
fn said(reply: &Reply) -> String {
    let document: Value = serde_json::from_slice(&reply.body).unwrap();
    let kind = document["type"].as_str().unwrap_or_default().rsplit(':').next().unwrap().to_owned();
    format!("{} {kind}", reply.status.as_u16())
}

fn count(entries: &Value, order: &Value) -> usize {
    entries.as_array().unwrap().iter().filter(|entry| entry["of"]["order"] == *order).count()
}

// S21, S23, D5: wherever it dies, one row, one charge and one receipt.
async fn an_order_survives_its_process(keys: &str) {
    let place = Place::new(keys, "1");
    let mut service = place.start("127.0.0.1:0");
    let address = service.address.clone();
    let mut orders = Vec::new();
    // At which points the next attempt asks the network again what it has been asked before.
    let points = [("reserving", 0), ("reserved", 0), ("charged", 1), ("recorded", 1), ("receipted", 2), ("done", 2)];
    for (point, repeated) in points {
        let card = format!("die:{point}");
        assert!(place.post(&address, "/orders", point, &card).await.is_none(), "{point}: did not die");
        service.ended();
        service = place.start(&address);
        let reply = place.retry(&address, "/orders", point, &card).await;
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (201, false), "{point}: {reply:?}");
        let order: Value = serde_json::from_slice(&reply.body).unwrap();
        let ledger = place.ledger().await;
        assert_eq!(count(&ledger["charges"], &order["id"]), 1, "{point}");
        assert_eq!(count(&ledger["receipts"], &order["id"]), 1, "{point}");
        assert_eq!(ledger["repeated"], repeated, "{point}: a step that was recorded was done again");
        orders.push(order);
        assert_eq!(place.rows(&address, "/orders").await, orders, "{point}");
        let replay = place.post(&address, "/orders", point, &card).await.unwrap();
        assert!(replay.is_replay() && replay.body == reply.body, "{point}");
    }
    let ledger = place.ledger().await;
    assert_eq!((ledger["charges"].as_array().unwrap().len(), ledger["receipts"].as_array().unwrap().len()), (6, 6));
}

// S3, S24, H35, case L12: stopped past its lease, and then awake again.
async fn an_order_that_slept_changes_nothing(keys: &str) {
    let place = Place::new(keys, "2");
    let (old, new) = (place.start("127.0.0.1:0"), place.start("127.0.0.1:0"));
    let card = "wait:charged:1500";
    let (slept, followed) = tokio::join!(place.post(&old.address, "/orders", "slept", card), async {
        while place.ledger().await["charges"].as_array().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        old.signal("STOP");
        let followed = place.retry(&new.address, "/orders", "slept", card).await;
        old.signal("CONT");
        followed
    });
    assert_eq!((followed.status.as_u16(), followed.is_replay()), (201, false), "{followed:?}");
    let slept = slept.expect("an answer");
    assert_eq!(said(&slept), "409 lease-lost");
    assert!(slept.headers.contains_key("retry-after"));
    for service in [&old, &new] {
        let replay = place.post(&service.address, "/orders", "slept", card).await.unwrap();
        assert!(replay.is_replay());
        assert_eq!(replay.body, followed.body);
    }
    let order: Value = serde_json::from_slice(&followed.body).unwrap();
    assert_eq!(place.rows(&new.address, "/orders").await, [order]);
    let ledger = place.ledger().await;
    // The one that slept had charged, its successor asked for the same charge, and only that one asked for a receipt.
    assert_eq!(ledger["repeated"], 1);
    assert_eq!((ledger["charges"].as_array().unwrap().len(), ledger["receipts"].as_array().unwrap().len()), (1, 1));
}

// S8, S22: a call whose end is unknown is not sent again until an operator has looked.
async fn a_payout_is_held(keys: &str) {
    let place = Place::new(keys, "1");
    let mut service = place.start("127.0.0.1:0");
    let address = service.address.clone();
    // Before the call nothing is unknown.
    for (key, card, held) in
        [("early", "die:before", false), ("settled", "die:paid", true), ("released", "die:paid", true)]
    {
        assert!(place.post(&address, "/payouts", key, card).await.is_none(), "{key}: did not die");
        service.ended();
        service = place.start(&address);
        let reply = place.retry(&address, "/payouts", key, card).await;
        let expected = if held { "409 outcome-unknown" } else { "201 " };
        assert_eq!(said(&reply), expected, "{key}");
        assert!(!reply.headers.contains_key("retry-after"));
        assert_eq!(place.stuck(&address, key).await.is_some(), held, "{key}");
    }
    let payouts = async || place.ledger().await["payouts"].as_array().unwrap().len();
    assert_eq!((payouts().await, place.rows(&address, "/payouts").await.len()), (3, 1));

    let stuck = format!("http://{address}/stuck");
    assert_eq!(place.client.send(Method::GET, &stuck, None, "").await.unwrap().status, 403);

    // The operator has looked into the ledger: it was paid.
    let entry = place.stuck(&address, "settled").await.unwrap();
    let word = json!({ "status": 201, "body": { "payout": "payout_2" } });
    assert_eq!(place.operate(&address, &entry, "settle", &word).await, 204);
    assert_eq!(place.operate(&address, &entry, "settle", &word).await, 404);
    let reply = place.post(&address, "/payouts", "settled", "die:paid").await.unwrap();
    assert!(reply.is_replay());
    assert_eq!(serde_json::from_slice::<Value>(&reply.body).unwrap(), word["body"]);
    assert_eq!(payouts().await, 3);

    // The operator says that it was not: the next request runs.
    let entry = place.stuck(&address, "released").await.unwrap();
    assert_eq!(place.operate(&address, &entry, "release", &json!({})).await, 204);
    let reply = place.post(&address, "/payouts", "released", "die:paid").await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.is_replay()), (201, false));
    assert_eq!((payouts().await, place.rows(&address, "/payouts").await.len()), (4, 2));
    assert!(place.stuck(&address, "released").await.is_none());
}

// S22, H32: no answer of the network ends an order's attempt, and holds a payout at once.
async fn a_network_that_is_away(keys: &str) {
    let place = Place::new(keys, "30");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let service = place.start_with("127.0.0.1:0", &away);
    let address = service.address.clone();
    assert_eq!(place.post(&address, "/orders", "away", "ok").await.unwrap().status, 502);
    assert_eq!(place.post(&address, "/payouts", "away", "ok").await.unwrap().status, 502);
    assert_eq!(said(&place.post(&address, "/payouts", "away", "ok").await.unwrap()), "409 outcome-unknown");
    assert_eq!(service.terminate(), Some(0));
    let service = place.start(&address);
    // At once: its key was free.
    let reply = place.post(&address, "/orders", "away", "ok").await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.is_replay()), (201, false));
    for replayed in [false, true] {
        let reply = place.post(&address, "/orders", "declined", "declined").await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (402, replayed));
    }
    assert_eq!(place.ledger().await["charges"].as_array().unwrap().len(), 1);
    drop(service);
}

macro_rules! charge {
    ($($test:ident, $on_redis:ident, $on_a_cluster:ident: $run:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                $run("lease").await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn $on_redis() {
                let _calm = redis::calm().await;
                $run(&redis::url()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn $on_a_cluster() {
                let _calm = redis::calm().await;
                $run(&super::leases::cluster()).await;
            }
        )*
    };
}

charge! {
    order, order_on_redis, order_on_a_cluster: an_order_survives_its_process;
    slept, slept_on_redis, slept_on_a_cluster: an_order_that_slept_changes_nothing;
    payout, payout_on_redis, payout_on_a_cluster: a_payout_is_held;
    away, away_on_redis, away_on_a_cluster: a_network_that_is_away;
}

// Without any settings but its file it brings its own network.
#[tokio::test]
async fn the_example_needs_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("charge.sqlite").display());
    let service = Service::example("charge", &[("LISTEN", "127.0.0.1:0"), ("DATABASE_URL", &url)]);
    let (client, orders) = (Client::new(), format!("http://{}/orders", service.address));
    for replayed in [false, true] {
        let reply = client.send(Method::POST, &orders, Some("one"), r#"{"amount": 1, "card": "ok"}"#).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.is_replay()), (201, replayed));
    }
    assert_eq!(client.send(Method::POST, &orders, None, "{}").await.unwrap().status, 400);
}
