//! Webhooks: what to answer to a sender that delivers again.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{Request, Response, StatusCode, header};
use axum::routing::post;
use axum::{Router, body::Body};
use bytes::Bytes;
use http_body_util::BodyExt;
use idempotency::inbox::source::IdSource;
use idempotency::inbox::{DeliveryError, Processed};
use sqlx::{Postgres, Sqlite};
use tower::ServiceExt;

use super::engine::{Engine, Shop};
use super::handler::{Answer, Consumer, Runs, consumer, soon};

type Webhooks = Consumer<Request<Bytes>>;

/// The recipe of the guide.
fn answer(answer: &Answer) -> Response<Body> {
    let status = match answer {
        Ok(Processed::First(()) | Processed::Duplicate) => StatusCode::OK,
        Ok(Processed::Busy { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        Ok(Processed::Conflict) => StatusCode::CONFLICT,
        Ok(Processed::Poison) => StatusCode::GONE,
        Err(DeliveryError::Identity(_)) => StatusCode::BAD_REQUEST,
        Err(DeliveryError::Inbox(_)) => StatusCode::SERVICE_UNAVAILABLE,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

async fn receive(State(webhooks): State<Webhooks>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return answer_of(StatusCode::BAD_REQUEST) };
    answer(&webhooks.deliver(Request::from_parts(parts, body.to_bytes())).await)
}

fn answer_of(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn app<DB: Engine>(shop: &Shop<DB>, runs: &Runs) -> Router {
    let webhooks: Webhooks = consumer(&shop.inbox, IdSource::standard_webhooks("psp"), runs);
    Router::new().route("/", post(receive)).with_state(webhooks)
}

async fn deliver(app: &Router, id: Option<&str>, body: &str) -> Response<Body> {
    let request = Request::post("/");
    let request = match id {
        Some(id) => request.header("webhook-id", id),
        None => request,
    };
    app.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

async fn status(app: &Router, id: &str, body: &str) -> u16 {
    deliver(app, Some(id), body).await.status().as_u16()
}

// M9: 503 with Retry-After, at once, and others are not refused because of it.
async fn busy_is_503<DB: Engine>(others_run: bool) {
    let (shop, runs) = (Shop::<DB>::new().await, Runs::default());
    let app = app(&shop, &runs);
    let running = {
        let app = app.clone();
        tokio::spawn(async move { status(&app, "a", "slow 1000").await })
    };
    soon("the handler runs", async || (runs.started() == 1).then_some(())).await;
    let asked = Instant::now();
    let refused = deliver(&app, Some("a"), "slow 1000").await;
    assert_eq!((refused.status().as_u16(), refused.headers()[header::RETRY_AFTER].as_bytes()), (503, &b"1"[..]));
    assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
    assert_eq!(status(&app, "b", "b").await, 200);
    assert_eq!(others_run, !running.is_finished(), "on SQLite writers wait for each other");
    assert_eq!(running.await.unwrap(), 200);
    assert_eq!(status(&app, "a", "slow 1000").await, 200);
    assert_eq!((runs.started(), shop.effects().await.len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_runs_is_503_on_postgres() {
    busy_is_503::<Postgres>(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_runs_is_503_on_sqlite() {
    busy_is_503::<Sqlite>(false).await;
}

// M1, M2, M5
#[tokio::test(flavor = "multi_thread")]
async fn each_answer_of_the_inbox_has_a_status() {
    let (shop, runs) = (Shop::<Sqlite>::new().await, Runs::default());
    let app = app(&shop, &runs);
    assert_eq!(status(&app, "a", "a").await, 200);
    assert_eq!(status(&app, "a", "a").await, 200);
    assert_eq!(status(&app, "a", "other").await, 409);
    assert_eq!(status(&app, "", "a").await, 400);
    assert_eq!(deliver(&app, None, "a").await.status().as_u16(), 400);
    assert_eq!(status(&app, "f", "fail").await, 500);
    assert_eq!(status(&app, "f", "fail").await, 500, "a redelivery runs again");
    assert_eq!((runs.started(), shop.effects().await), (3, vec!["a".to_owned()]));
}

// M2, M3: a crowd, and ids that look alike.
#[tokio::test(flavor = "multi_thread")]
async fn each_id_of_a_crowd_is_applied_once() {
    let (shop, runs) = (Shop::<Postgres>::new().await, Runs::default());
    let app = app(&shop, &runs);
    let ids = ["A", "a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let (app, id) = (app.clone(), ids[n % ids.len()]);
            tokio::spawn(async move {
                while status(&app, id, id).await != 200 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut effects = shop.effects().await;
    effects.sort_unstable();
    assert_eq!(effects, ids);
}
