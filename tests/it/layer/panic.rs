//! Handlers that panic (H26, cases D03, L04 and L07).

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::response::IntoResponse;
use futures_util::FutureExt;
use http::{Request, Response};
use idempotency::policy::Policy;
use idempotency::{IdempotencyLayer, Scope};
use tower::Layer;
use tower::service_fn;
use tower_http::catch_panic::CatchPanicLayer;

use crate::support::bodies::{Script, Step};
use crate::support::counters::Counters;
use crate::support::fake::Fake;
use crate::support::http::{Runs, layer, post, send};

type Future = futures_util::future::BoxFuture<'static, Result<Response<Body>, std::convert::Infallible>>;

fn ready(response: impl IntoResponse) -> Future {
    std::future::ready(Ok(response.into_response())).boxed()
}

fn in_call() -> Future {
    panic!("the call panics")
}

fn in_future() -> Future {
    async {
        tokio::task::yield_now().await;
        panic!("the future panics")
    }
    .boxed()
}

fn in_body() -> Future {
    ready(Body::new(Script::new([Step::Data("half"), Step::Yield, Step::Panic])))
}

// H26: abandoned, and the store has said so, before the panic reaches the caller; the key is free.
#[tokio::test]
async fn a_panic_is_settled_before_it_goes_on() {
    let counters = Counters::default();
    let _guard = counters.install();
    for (name, panics) in [("call", in_call as fn() -> Future), ("future", in_future), ("body", in_body)] {
        for store in [Fake::new(), Fake::new().lease()] {
            // The settlement takes its time: the panic has to wait for it.
            let store = store.on_settle(|_| tokio::task::yield_now().map(|()| None));
            let (runs, before) = (Runs::default(), counters.of("panicked"));
            let handler = runs.clone();
            let service = IdempotencyLayer::new(store.clone(), Scope::shared())
                .layer(service_fn(move |_: Request<_>| if handler.next() == 1 { panics() } else { ready("done") }));
            let payload = AssertUnwindSafe(send(&service, post("k"))).catch_unwind().await.unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>().copied(), Some(&*format!("the {name} panics")));
            assert_eq!(store.settlements(), ["abandon"], "{name}");
            assert_eq!(counters.of("panicked"), before + 1);
            let again = send(&service, post("k")).await;
            assert_eq!((again.text(), again.is_replay(), runs.count()), ("done", false, 2), "{name}");
        }
    }
}

// H26: the policy runs after the handler, and its panic must not keep the key either.
#[tokio::test]
async fn a_policy_that_panics_frees_the_key() {
    let store = Fake::new().lease();
    let policy = Policy::from_fn(|_| panic!("the policy panics"));
    let app = Runs::default().app().layer(IdempotencyLayer::new(store.clone(), Scope::shared()).policy(policy));
    AssertUnwindSafe(send(&app, post("k"))).catch_unwind().await.unwrap_err();
    assert_eq!(store.settlements(), ["abandon"]);
}

// H26, H45: a CatchPanic outside makes its 500 of it.
#[tokio::test]
async fn catch_panic_outside_answers_500_and_the_retry_runs() {
    let runs = Runs::default();
    let handler = runs.clone();
    let app = axum::Router::new()
        .fallback(async move || {
            assert!(handler.next() > 1, "the first one panics");
            "done"
        })
        .layer(layer())
        .layer(CatchPanicLayer::new());
    assert_eq!(send(&app, post("k")).await.said(), "500");
    assert_eq!(send(&app, post("k")).await.text(), "done");
}
