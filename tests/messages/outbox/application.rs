//! From the application's side: events in whatever transaction it has, and what its tests say of them.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use futures_util::FutureExt;
use idempotency::outbox::{Event, Outbox};
use idempotency::store::Store;
use idempotency::testing::outbox::{Harness, assert_enqueued, drain, enqueued_in, refute_enqueued};
use idempotency::{IdempotencyLayer, MySqlStore, OutboxDialect, PostgresStore, Scope, SqliteStore, Tx};
use sqlx::{MySql, Postgres, Sqlite};
use tower::ServiceExt;

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};

fn placed(n: &str) -> Event {
    Event::new("broker", "orders", "order.placed", "/orders").key("c1").payload("text/plain", n.to_owned())
}

async fn send(app: &Router, key: &str, body: &str) -> StatusCode {
    let request = Request::post("/orders").header("idempotency-key", key).body(Body::from(body.to_owned())).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

/// An order that is placed once, retried, and one that fails.
async fn one_event_an_order<DB: OutboxDialect>(app: Router, outbox: Outbox<DB>) {
    for _ in 0..3 {
        assert_eq!(send(&app, "order-1", "1").await, StatusCode::CREATED);
    }
    assert_eq!(send(&app, "order-2", "fail").await, StatusCode::INTERNAL_SERVER_ERROR);
    let found = assert_enqueued(&outbox, |pending| pending.event().kind() == "order.placed").await;
    assert_eq!(found.event(), &placed("1"));
    refute_enqueued(&outbox, |pending| &pending.event().payload_ref()[..] == b"fail").await;
    let drained = drain(&outbox).await;
    assert_eq!(drained.len(), 1);
    assert!(drain(&outbox).await.is_empty());
}

// M20, M42: the event is in the request's own transaction: once for all its tries, and not at all where it fails.
macro_rules! in_a_request {
    ($name:ident, $lab:ty, $engine:ty, $store:ty) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let lab = <$lab>::new().await;
            let store = <$store>::new(lab.pool().clone()).await.unwrap();
            let outbox = lab.outbox().await;
            let enqueueing = outbox.clone();
            let handler = move |mut tx: Tx<$engine>, body: String| async move {
                enqueueing.enqueue(&mut tx, &placed(&body)).await.unwrap();
                if body == "fail" { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED }
            };
            one_event_an_order(layered(store, handler), outbox).await;
        }
    };
}

fn layered<S: Store, H, T>(store: S, handler: H) -> Router
where
    H: axum::handler::Handler<T, ()>,
    T: 'static,
{
    Router::new().route("/orders", post(handler)).layer(IdempotencyLayer::new(store, Scope::shared()))
}

in_a_request!(in_a_request_on_postgres, PostgresLab, Postgres, PostgresStore);
in_a_request!(in_a_request_on_sqlite, SqliteLab, Sqlite, SqliteStore);
in_a_request!(in_a_request_on_mariadb, MariaDbLab, MySql, MySqlStore);

// M42: an assertion that does not hold says what is there.
#[tokio::test(flavor = "multi_thread")]
async fn assertions_fail() {
    let lab = SqliteLab::new().await;
    let outbox = lab.outbox().await;
    let mut tx = lab.transaction().await;
    outbox.enqueue(&mut tx, &placed("1")).await.unwrap();
    assert_eq!(enqueued_in(&outbox, &mut tx).await.len(), 1);
    refute_enqueued(&outbox, |_| true).await;
    tx.commit().await.unwrap();
    let says = |panic: Box<dyn std::any::Any + Send>| *panic.downcast::<String>().unwrap();
    let absent = assert_enqueued(&outbox, |pending| pending.event().kind() == "other");
    let said = says(AssertUnwindSafe(absent).catch_unwind().await.unwrap_err());
    assert!(said.contains("order.placed") && !said.contains("c1"), "{said}");
    let present = refute_enqueued(&outbox, |pending| pending.event().kind() == "order.placed");
    assert!(says(AssertUnwindSafe(present).catch_unwind().await.unwrap_err()).contains("order.placed"));
}

// Calls of an outbox can be spawned.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_send() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let lab = SqliteLab::new().await;
    let outbox = lab.outbox().await;
    is_send(outbox.stats()).await.unwrap();
    is_send(outbox.redrive(uuid::Uuid::nil())).await.unwrap();
    is_send(outbox.purge(1)).await.unwrap();
    let mut tx = lab.transaction().await;
    is_send(outbox.enqueue(&mut tx, &placed("1"))).await.unwrap();
}
