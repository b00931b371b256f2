//! Layers in one another.

use axum::Router;

use super::works;
use crate::support::http::layer;

// H45: two layers, one in the other, do not get in each other's way: each has its store.
#[tokio::test]
async fn two_layers_in_one_another() {
    works("two stores", "/", |handler| Router::new().route("/", handler).layer(layer()).layer(layer())).await;
}

// H45: the same layer met twice on the way guards once; as its own duplicate a request would wait for itself.
#[tokio::test]
async fn the_same_layer_twice_guards_once() {
    works("one layer, twice", "/", |handler| {
        let layer = layer();
        Router::new().route("/", handler).layer(layer.clone()).layer(layer)
    })
    .await;
}
