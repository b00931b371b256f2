use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::outbox::publish::testing::pending;
use crate::outbox::{Event, PendingEvent, TraceContext};

const ID: &str = "018f4d3c-0000-7000-8000-000000000001";

fn event(event: Event) -> PendingEvent {
    let at = UNIX_EPOCH + Duration::from_micros(784_111_777_000_042);
    pending(event.id(Uuid::parse_str(ID).unwrap()), at, 0)
}

fn placed() -> Event {
    Event::new("out", "orders", "order.placed", "/orders").key("c1")
}

fn parsed(event: &PendingEvent) -> Value {
    let text = structured(event);
    assert!(!text.contains(&b'\n') && !text.contains(&b'\r'));
    serde_json::from_slice(&text).unwrap()
}

// M21
#[test]
fn an_event_is_one_object() {
    let event = event(placed().payload("application/json; charset=utf-8", "{\"n\":\r\n 1}").header("tenant", "t1"));
    assert_eq!(
        parsed(&event),
        json!({
            "specversion": "1.0", "id": ID, "source": "/orders", "type": "order.placed", "subject": "c1",
            "time": "1994-11-06T08:49:37.000042Z", "datacontenttype": "application/json; charset=utf-8",
            "tenant": "t1", "data": {"n": 1},
        })
    );
}

// M21: payload bytes untouched. A parser would have rounded these.
#[test]
fn numbers_and_spelling_of_a_json_payload_stay() {
    let data = r#"{"a":12345678901234567890123,"b":1.10,"a":"\u00e9"}"#;
    let text = String::from_utf8(structured(&event(placed().payload("application/vnd.x+json", data)))).unwrap();
    assert!(text.ends_with(&format!("\"data\":{data}}}")), "{text}");
}

#[test]
fn what_is_no_json_is_base64() {
    for (media_type, payload) in [
        ("text/plain", &b"{}"[..]),
        ("application/json", b"{"),
        ("application/json", b"{} {}"),
        ("application/json", b"\"\xff\""),
        ("application/json", b""),
        ("application/jsonish", b"{}"),
    ] {
        let value = parsed(&event(placed().payload(media_type, payload)));
        assert_eq!(value.get("data"), None, "{media_type}");
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(payload);
        assert_eq!(value["data_base64"], json!(encoded), "{media_type}");
    }
    let bytes = parsed(&event(placed().bytes(&b"\x00\x01"[..])));
    assert_eq!((bytes.get("datacontenttype"), &bytes["data_base64"]), (None, &json!("AAE=")));
    assert_eq!(parsed(&event(placed())).get("data_base64"), None);
}

#[test]
fn no_header_field_takes_the_place_of_an_attribute() {
    let forged =
        placed().header("id", "x").header("subject", "x").header("data", "x").header("x-y", "z").header("n", "1");
    let forged = Event { key: None, ..forged };
    let value = parsed(&event(forged.payload("application/json", "1")));
    assert_eq!((&value["id"], value.get("subject"), &value["data"]), (&json!(ID), None, &json!(1)));
    assert_eq!((value.get("x-y"), &value["n"]), (None, &json!("1")));
}

fn field(binding: Binding, event: &PendingEvent, name: &str) -> Vec<String> {
    binding.fields(event).into_iter().filter(|(field, _)| field == name).map(|(_, value)| value.into_owned()).collect()
}

// M21, and an empty key is a key that CloudEvents cannot show.
#[test]
fn every_binding_has_its_own_names() {
    let trace = TraceContext { traceparent: "00-01-02-01".to_owned(), tracestate: Some("a=b".to_owned()) };
    let event =
        event(placed().key("caf\u{e9} \"1\"%").trace(trace).header("tenant", "t 1").header("traceparent", "no"));
    for (binding, prefix, subject) in [
        (Binding::Http, "ce-", "caf%C3%A9%20%221%22%25"),
        (Binding::Nats, "ce-", "caf%C3%A9%20%221%22%25"),
        (Binding::Amqp, "cloudEvents_", "caf\u{e9} \"1\"%"),
        (Binding::Kafka, "ce_", "caf\u{e9} \"1\"%"),
        (Binding::Redis, "ce-", "caf\u{e9} \"1\"%"),
    ] {
        let one = |name: &str| field(binding, &event, &format!("{prefix}{name}")).join("|");
        assert_eq!((one("id").as_str(), one("type").as_str()), (ID, "order.placed"), "{binding:?}");
        assert_eq!((one("specversion").as_str(), one("source").as_str()), ("1.0", "/orders"));
        assert_eq!((one("subject").as_str(), one("traceparent").as_str()), (subject, "00-01-02-01"));
        assert_eq!(one("tracestate"), "a=b");
        assert_eq!(field(binding, &event, "traceparent"), ["00-01-02-01"]);
        assert_eq!(field(binding, &event, "tenant"), ["t 1"]);
    }
    assert_eq!(field(Binding::Kafka, &self::event(placed().key("")), "ce_subject"), [""; 0]);
}

#[test]
fn what_belongs_to_a_protocol_is_not_an_events_to_say() {
    for (binding, name) in [
        (Binding::Http, "CE-ID"),
        (Binding::Http, "Content-Length"),
        (Binding::Http, "Transfer-Encoding"),
        (Binding::Http, "webhook-id"),
        (Binding::Nats, "Nats-Msg-Id"),
        (Binding::Nats, "nats-rollup"),
        (Binding::Amqp, "BCC"),
        (Binding::Amqp, "cloudEvents:id"),
        (Binding::Kafka, "ce_id"),
        (Binding::Redis, "data"),
        (Binding::Redis, "content-type"),
    ] {
        let event = event(placed().header(name, "forged"));
        assert!(!binding.fields(&event).iter().any(|(_, value)| value == "forged"), "{binding:?} {name}");
    }
}
