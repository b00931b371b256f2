//! Where the layer can stand (H45): each arrangement compiles, runs once and replays.

mod middleware;
mod nested;
mod routers;
mod services;

use axum::Router;
use axum::routing::{MethodRouter, post};
use http::Method;

use crate::support::http::{Runs, request, send};

/// Says `run N` and what it was sent.
fn handler(runs: &Runs) -> MethodRouter {
    let runs = runs.clone();
    post(async move |body: String| format!("run {} of {body}", runs.next()))
}

/// Builds one arrangement around a handler of its own, runs it once and has it replayed: seen by the mark, since two equal
/// answers may come from two runs (case R22).
async fn works(what: &str, path: &str, arrange: impl FnOnce(MethodRouter) -> Router) {
    let runs = Runs::default();
    let app = arrange(handler(&runs));
    for replayed in [false, true] {
        let answer = send(&app, request(Method::POST, path, Some("k"), "{}")).await;
        assert_eq!((answer.text(), answer.is_replay()), ("run 1 of {}", replayed), "{what}");
    }
    let other = send(&app, request(Method::POST, path, Some("k"), "[]")).await;
    assert_eq!((other.said().as_str(), runs.count()), ("422 key-reused", 1), "{what}");
}
