//! The layer itself (M9), over any message.

use std::borrow::Cow;
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Request;
use bytes::Bytes;
use idempotency::ErrorKind;
use idempotency::inbox::source::{IdError, IdSource, Incoming};
use idempotency::inbox::{Delivery, DeliveryError, InboxLayer, Processed};
use sqlx::{Postgres, Sqlite};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::engine::{Engine, Shop};
use super::handler::giving_up_after;

type Hook = Request<Bytes>;

fn hook(id: &str, body: &'static str) -> Hook {
    Request::builder().header("webhook-id", id).body(Bytes::from_static(body.as_bytes())).unwrap()
}

fn layer<DB: Engine>(shop: &Shop<DB>) -> InboxLayer<DB> {
    InboxLayer::new(shop.inbox.clone(), IdSource::standard_webhooks("psp"))
}

/// Writes, and then does what the body says.
async fn handle<DB: Engine>(
    mut delivery: Delivery<Hook, DB>,
) -> Result<&'static str, Box<dyn std::error::Error + Send>> {
    DB::write(&mut delivery.tx, "x").await.unwrap();
    match &**delivery.message.body() {
        b"fail" => Err(Box::new(std::fmt::Error)),
        b"panic" => panic!("on purpose"),
        b"hang" => pending().await,
        b"hold" => {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                drop(delivery);
            });
            Ok("held")
        }
        _ => Ok("done"),
    }
}

async fn answers<DB: Engine>() {
    let shop = Shop::<DB>::new().await;
    let service = layer(&shop).layer(service_fn(handle::<DB>));
    let deliver = async |id: &str, body| service.clone().oneshot(hook(id, body)).await;

    assert!(matches!(deliver("a", "ok").await, Ok(Processed::First("done"))));
    assert!(matches!(deliver("a", "ok").await, Ok(Processed::Duplicate)));
    assert!(matches!(deliver("a", "other").await, Ok(Processed::Conflict)));
    let lenient = layer(&shop).ignore_payloads().layer(service_fn(handle::<DB>));
    assert!(matches!(lenient.oneshot(hook("a", "other")).await, Ok(Processed::Duplicate)));
    assert_eq!(shop.effects().await.len(), 1);

    // Each of these is undone, and the redelivery runs.
    assert!(matches!(deliver("b", "fail").await, Err(DeliveryError::Service(_))));
    assert!(matches!(deliver("b", "panic").await, Err(DeliveryError::Panicked)));
    let hanging = tokio::time::timeout(Duration::from_millis(300), deliver("b", "hang")).await;
    assert!(hanging.is_err());
    assert_eq!(shop.effects().await.len(), 1);
    // What was dropped is rolled back beside us.
    let mut answer = deliver("b", "ok").await;
    while matches!(answer, Ok(Processed::Busy { .. })) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer = deliver("b", "ok").await;
    }
    assert!(matches!(answer, Ok(Processed::First("done"))), "{answer:?}");

    let held = deliver("c", "hold").await;
    assert!(
        matches!(held, Err(DeliveryError::Inbox(ref error)) if error.kind() == ErrorKind::HeldTransaction),
        "{held:?}"
    );
    assert!(matches!(deliver("c", "ok").await, Ok(Processed::Busy { .. })), "its transaction is still out");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(matches!(deliver("c", "ok").await, Ok(Processed::First("done"))));

    let nameless = service.clone().oneshot(Request::new(Bytes::new())).await.unwrap_err();
    assert!(matches!(nameless, DeliveryError::Identity(_)) && !nameless.is_retryable());
    assert_eq!(shop.effects().await.len(), 3);
}

// M1, M4, M5, case B23
#[tokio::test(flavor = "multi_thread")]
async fn the_service_runs_for_first_deliveries_and_what_fails_is_undone_on_postgres() {
    answers::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_runs_for_first_deliveries_and_what_fails_is_undone_on_sqlite() {
    answers::<Sqlite>().await;
}

/// A service that is ready when the semaphore lets it.
#[derive(Clone)]
struct Late(Arc<Semaphore>);

impl<DB: Engine> Service<Delivery<Hook, DB>> for Late {
    type Response = ();
    type Error = std::fmt::Error;
    type Future = std::future::Ready<Result<(), std::fmt::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), std::fmt::Error>> {
        if self.0.is_closed() {
            return Poll::Ready(Err(std::fmt::Error));
        }
        if self.0.available_permits() > 0 {
            return Poll::Ready(Ok(()));
        }
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            waker.wake();
        });
        Poll::Pending
    }

    fn call(&mut self, _: Delivery<Hook, DB>) -> Self::Future {
        std::future::ready(Ok(()))
    }
}

// M9: as in the HTTP layer (H25), nothing is begun for a service that is not ready.
#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_waits_for_a_service_that_is_not_ready() {
    let shop = Shop::<Postgres>::new().await;
    let permits = Arc::new(Semaphore::new(0));
    let mut service = layer(&shop).layer(Late(Arc::clone(&permits)));
    std::future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let waiting = tokio::spawn(service.call(hook("a", "a")));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    assert_eq!(shop.pool.num_idle(), shop.pool.size() as usize, "a connection waits for the service");
    permits.add_permits(1);
    assert!(matches!(waiting.await.unwrap(), Ok(Processed::First(()))));
    permits.close();
    let refused = service.call(hook("b", "b")).await;
    assert!(matches!(refused, Err(DeliveryError::Service(std::fmt::Error))));
}

/// A message that its broker has delivered so often.
struct Counted(u64);

impl Incoming for Counted {
    fn payload(&self) -> &[u8] {
        b"x"
    }

    fn header(&self, _: &str) -> Result<Option<Cow<'_, [u8]>>, IdError> {
        Ok(Some(Cow::Borrowed(b"1")))
    }

    fn deliveries(&self) -> Option<u64> {
        Some(self.0)
    }
}

// M6: the broker's own count, unless the host knows better.
#[tokio::test(flavor = "multi_thread")]
async fn the_brokers_count_decides_unless_it_is_ignored() {
    let shop = Shop::<Postgres>::new().await;
    let layer = InboxLayer::new(giving_up_after(&shop, 3).await, IdSource::header("q", "id"));
    let fails = service_fn(async |delivery: Delivery<Counted, Postgres>| Err::<(), _>(delivery.attempt));
    let trusting = layer.layer(fails);
    assert!(matches!(trusting.clone().oneshot(Counted(3)).await, Err(DeliveryError::Service(Some(3)))));
    assert!(matches!(trusting.oneshot(Counted(4)).await, Ok(Processed::Poison)));
    // One failure so far.
    let own = layer.ignore_delivery_counts().layer(fails);
    for attempt in [2, 3] {
        let failed = own.clone().oneshot(Counted(100)).await;
        assert!(matches!(failed, Err(DeliveryError::Service(Some(own))) if own == attempt), "{failed:?}");
    }
    assert!(matches!(own.oneshot(Counted(1)).await, Ok(Processed::Poison)));
}
