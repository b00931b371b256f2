//! On axum's routers and routes, nested and merged.

use axum::Router;
use axum::routing::any;
use http::Method;

use super::works;
use crate::support::http::{Runs, layer, request, send};

// H45
#[tokio::test]
async fn on_routers_and_routes() {
    works("Router::layer", "/", |handler| Router::new().route("/", handler).layer(layer())).await;
    works("Router::route_layer", "/", |handler| Router::new().route("/", handler).route_layer(layer())).await;
    works("MethodRouter::layer", "/", |handler| Router::new().route("/", handler.layer(layer()))).await;
    works("MethodRouter::route_layer", "/", |handler| Router::new().route("/", handler.route_layer(layer()))).await;
    works("a fallback", "/x", |handler| Router::new().fallback_service(handler.layer(layer()))).await;
    works("a route service", "/s", |handler| Router::new().route_service("/s", tower::Layer::layer(&layer(), handler)))
        .await;
    works("a router with state", "/", |handler| {
        let stateful: Router<u8> = Router::new().route("/", handler.with_state(()));
        stateful.layer(layer()).with_state(7)
    })
    .await;
}

// H45
#[tokio::test]
async fn on_nested_and_merged_routers() {
    works("inside nest", "/api/v1/pay/1", |handler| {
        let api = Router::new().route("/pay/{id}", handler).layer(layer());
        Router::new().nest("/api", Router::new().nest("/v1", api))
    })
    .await;
    works("on a route inside nest", "/api/pay", |handler| {
        Router::new().nest("/api", Router::new().route("/pay", handler.layer(layer())))
    })
    .await;
    works("route_layer inside nest", "/api/pay", |handler| {
        Router::new().nest("/api", Router::new().route("/pay", handler).route_layer(layer()))
    })
    .await;
    works("outside nest", "/api/pay", |handler| {
        Router::new().nest("/api", Router::new().route("/pay", handler)).layer(layer())
    })
    .await;
    works("merged", "/", |handler| Router::new().merge(Router::new().route("/", handler).layer(layer()))).await;
    works("inside nest_service", "/s/x", |handler| {
        Router::new().nest_service("/s", Router::new().fallback_service(handler).layer(layer()))
    })
    .await;
}

// H45, H46: services of one layer share its table, however they were made.
#[tokio::test]
async fn one_layer_on_many_routes_is_one_layer() {
    let (runs, layer) = (Runs::default(), layer());
    let handler = || {
        let runs = runs.clone();
        any(move || std::future::ready(format!("run {}", runs.next()))).layer(layer.clone())
    };
    let app: Router = Router::new().route("/a", handler()).route("/b", handler());
    for path in ["/a", "/b"] {
        assert!(!send(&app, request(Method::POST, path, Some("k"), "")).await.is_replay());
        assert!(send(&app, request(Method::POST, path, Some("k"), "")).await.is_replay());
    }
    assert_eq!((runs.count(), layer.keys_in_flight()), (2, 0));
}
