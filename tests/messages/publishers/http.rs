//! HTTP endpoints, by a real server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use idempotency::outbox::publish::{Answer, HttpPublisher, Publisher, Reason, StandardWebhooks, ToSign};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::events::{event, order, pending};
use crate::support::brokers::{Flow, Gate, until};

const SOON: Duration = Duration::from_millis(500);

/// Keeps what it gets and answers as it is told.
#[derive(Clone, Default)]
struct Endpoint(Arc<Mutex<(Vec<Got>, Vec<Response>)>>);

struct Got {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Endpoint {
    async fn started() -> (Self, String) {
        let endpoint = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().fallback(Self::take).with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (endpoint, address)
    }

    async fn take(State(Self(state)): State<Self>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
        let (got, answers) = &mut *state.lock().unwrap();
        got.push(Got { path: uri.to_string(), headers, body });
        answers.pop().unwrap_or_else(|| StatusCode::ACCEPTED.into_response())
    }

    fn answers(&self, answer: impl IntoResponse) {
        self.0.lock().unwrap().1.push(answer.into_response());
    }

    fn last(&self) -> Got {
        self.0.lock().unwrap().0.pop().unwrap()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().0.len()
    }
}

fn at(address: &str) -> HttpPublisher {
    HttpPublisher::new(&format!("http://{address}/hooks?token=t")).unwrap().deadline(SOON)
}

// M21
#[tokio::test]
async fn an_event_is_a_cloud_event_in_either_mode() {
    let (endpoint, address) = Endpoint::started().await;
    let event = pending(order("orders").key("caf\u{e9}").header("tenant", "t1").header("Content-Length", "7"), 0);
    assert_eq!(at(&address).publish(event.clone()).await, Answer::ACKED);
    let got = endpoint.last();
    let header = |name: &str| got.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(got.path, "/hooks/orders?token=t");
    assert_eq!(header("ce-id"), Some(event.id().to_string()));
    assert_eq!((header("ce-subject").as_deref(), header("tenant").as_deref()), (Some("caf%C3%A9"), Some("t1")));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(&got.body, event.event().payload_ref());

    assert_eq!(at(&address).structured().publish(event.clone()).await, Answer::ACKED);
    let got = endpoint.last();
    assert_eq!(got.headers["content-type"], "application/cloudevents+json");
    assert!(got.headers.get("ce-id").is_none() && got.headers["tenant"] == "t1");
    let value: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!((&value["id"], &value["subject"]), (&json!(event.id().to_string()), &json!("caf\u{e9}")));
}

#[tokio::test]
async fn requests_are_signed_over_the_bytes_that_are_sent() {
    let (endpoint, address) = Endpoint::started().await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let publisher = at(&address).structured().sign(StandardWebhooks::new(secret).unwrap());
    // A forged signature of the event's own is not sent.
    let event = pending(order("").header("webhook-signature", "v1,forged"), 3);
    assert_eq!(publisher.publish(event.clone()).await, Answer::ACKED);
    let got = endpoint.last();
    assert_eq!(got.headers["webhook-id"], event.id().to_string());
    assert_eq!(got.headers.get_all("webhook-signature").iter().count(), 1);
    assert!(got.headers["webhook-signature"].to_str().unwrap().starts_with("v1,"));
    let own = |request: &ToSign<'_>| {
        let length = request.body.len().into();
        HeaderMap::from_iter([("x-length".parse().unwrap(), length)])
    };
    assert_eq!(at(&address).sign(own).publish(event.clone()).await, Answer::ACKED);
    assert_eq!(endpoint.last().headers["x-length"], event.event().payload_ref().len().to_string());
}

// M34
#[tokio::test]
async fn answers_have_their_meaning_and_redirects_are_not_followed() {
    let (endpoint, address) = Endpoint::started().await;
    let publisher = at(&address);
    let wait = Answer::Unavailable { retry_after: Some(Duration::from_secs(7)) };
    for (status, answer) in [(503, wait), (429, wait), (409, wait), (404, Answer::refused(Reason::Status(404)))] {
        endpoint.answers((StatusCode::from_u16(status).unwrap(), [("retry-after", "7")]));
        assert_eq!(publisher.publish(event("")).await, answer, "{status}");
    }
    endpoint.answers(StatusCode::CONFLICT);
    assert_eq!(publisher.publish(event("")).await, Answer::never(Reason::Status(409)));
    let before = endpoint.count();
    for status in [301, 302, 303, 307, 308] {
        endpoint.answers((StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")]));
        assert_eq!(publisher.publish(event("")).await, Answer::never(Reason::Status(status)), "{status}");
    }
    assert_eq!(endpoint.count(), before + 5);
    assert_eq!(publisher.publish(event("../admin")).await, Answer::never(Reason::Malformed));
    assert_eq!(
        publisher.publish(pending(order("").header("a", "b\r\nc: d"), 0)).await,
        Answer::never(Reason::Malformed)
    );
}

// M34: sent and not answered is unknown, once; no connection is unavailable.
#[tokio::test]
async fn an_answer_that_is_lost_is_unknown_and_no_connection_is_unavailable() {
    let (endpoint, address) = Endpoint::started().await;
    let gate = Gate::before(&address).await;
    let publisher = at(&format!("127.0.0.1:{}", gate.port()));
    assert_eq!(publisher.publish(event("a")).await, Answer::ACKED);
    for flow in [Flow::NoAnswers, Flow::Stalled] {
        gate.set(flow);
        assert_eq!(publisher.publish(event("b")).await, Answer::Unknown, "{flow:?}");
        gate.set(Flow::Open);
    }
    until("both of them", async || endpoint.count() == 3).await;
    gate.set(Flow::NoAnswers);
    let count = endpoint.count();
    let cutting = async {
        until("the request", async || endpoint.count() > count).await;
        gate.set(Flow::Cut);
    };
    let (answer, ()) = tokio::join!(publisher.publish(event("c")), cutting);
    assert_eq!((answer, endpoint.count()), (Answer::Unknown, count + 1), "sent once");

    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let started = Instant::now();
    assert_eq!(at(&format!("127.0.0.1:{port}")).publish(event("d")).await, Answer::UNAVAILABLE);
    assert!(started.elapsed() < SOON);
}

#[tokio::test]
async fn a_connection_is_used_again_although_answers_have_bodies() {
    let (endpoint, address) = Endpoint::started().await;
    let gate = Gate::before(&address).await;
    let publisher = at(&format!("127.0.0.1:{}", gate.port())).deadline(Duration::from_secs(20));
    for _ in 0..20 {
        endpoint.answers("x".repeat(10_000));
        assert_eq!(publisher.publish(event("")).await, Answer::ACKED);
    }
    assert_eq!(gate.connections(), 1);
    let answers = join_all((0..200).map(|_| publisher.publish(event("")))).await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED));
}

#[test]
fn a_url_that_is_none_is_said_at_once_and_shown_nowhere() {
    for url in ["", "ftp://a/b", "http:", "/hooks"] {
        assert!(HttpPublisher::new(url).is_err(), "{url}");
    }
    let publisher = HttpPublisher::new("http://user:secret@e.example/hooks/secret?token=secret").unwrap();
    assert!(!format!("{publisher:?}").contains("secret"));
}
