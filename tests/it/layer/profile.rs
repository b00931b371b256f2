//! Settings that belong together: `Profile::ietf` and `Profile::stripe` (H43).

use axum::Router;
use http::{Method, StatusCode};
use idempotency::layer::Profile;
use idempotency::problem::ProblemKind;
use idempotency::{IdempotencyLayer, MemoryStore, Outcome, Scope};

use crate::support::fake::Fake;
use crate::support::http::{Gate, Runs, post, post_body, request, send};

fn layer_of(profile: Profile) -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::new(MemoryStore::new(), Scope::shared()).profile(profile)
}

/// A router that answers every request with this status, and counts.
fn answering(status: u16, retry_after: bool, runs: &Runs) -> Router {
    let runs = runs.clone();
    Router::new().fallback(async move || {
        runs.next();
        let mut response = axum::response::Response::new(axum::body::Body::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        if retry_after {
            response.headers_mut().insert("retry-after", 3.into());
        }
        response
    })
}

// H31, H32, H42, H43, cases R14 and R15: status × profile × what the store is told × whether a retry runs.
#[tokio::test]
async fn every_status_is_judged_by_the_profile() {
    let statuses = (200..=208)
        .chain(300..=308)
        .chain((400..=431).filter(|status| !(419..=420).contains(status)))
        .chain([451])
        .chain(500..=511);
    for status in statuses {
        let expected = match status {
            200..400 => ["commit", "commit"],
            402 | 409 | 410 => ["refuse", "refuse"],
            424 | 500..600 => ["abandon", "refuse"],
            _ => ["abandon", "abandon"],
        };
        for (profile, expected) in [Profile::ietf(), Profile::stripe()].into_iter().zip(expected) {
            for passes in [false, true] {
                let expected = if passes && status >= 400 { "abandon" } else { expected };
                let (runs, store) = (Runs::default(), Fake::new());
                let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).profile(profile);
                let app = answering(status, passes, &runs).layer(layer);
                assert_eq!(send(&app, post("k")).await.status, status);
                assert_eq!(store.settlements(), [expected], "{profile:?} {status} {passes}");
                let again = send(&app, post("k")).await;
                let stored = expected != "abandon";
                assert_eq!((again.status.as_u16(), again.is_replay()), (status, stored), "{profile:?} {status}");
                assert_eq!(runs.count(), if stored { 1 } else { 2 }, "{profile:?} {status}");
            }
        }
    }
}

// H43: which requests, where, and what a mismatch is called.
#[tokio::test]
async fn a_profile_says_which_requests_and_what_a_mismatch_is() {
    for (profile, patch_is_guarded, elsewhere, mismatch) in [
        (Profile::ietf(), true, "201", "422 key-reused"),
        (Profile::stripe(), false, "400 key-reused", "400 key-reused"),
    ] {
        let runs = Runs::default();
        let app = runs.app().layer(layer_of(profile));
        assert_eq!(send(&app, post("k")).await.said(), "201");
        let replay = send(&app, post("k")).await;
        assert_eq!((replay.text(), replay.is_replay()), ("run 1", true));
        let reused = send(&app, post_body("k", "[]")).await;
        assert_eq!(reused.said(), mismatch);
        assert_eq!(reused.json()["status"], reused.status.as_u16(), "the document says the same as the head");
        assert!(!reused.headers.contains_key("retry-after"));
        assert_eq!(
            reused.problem.map(|problem| (problem.kind(), problem.status())),
            Some((ProblemKind::KeyReused, reused.status))
        );
        assert_eq!(send(&app, request(Method::POST, "/other", Some("k"), "{}")).await.said(), elsewhere);
        for _ in 0..2 {
            send(&app, request(Method::PATCH, "/patched", Some("p"), "{}")).await;
        }
        assert!(send(&app, request(Method::PATCH, "/patched", Some("p"), "{}")).await.is_replay() == patch_is_guarded);
    }
}

// H43: the rest is the same in both.
#[tokio::test]
async fn a_running_request_and_a_bad_key_are_told_alike_in_every_profile() {
    for profile in [Profile::ietf(), Profile::stripe()] {
        let (runs, gate) = (Runs::default(), Gate::new());
        let app = gate.app(&runs).layer(layer_of(profile).require_key());
        let first = tokio::spawn({
            let app = app.clone();
            async move { send(&app, post("k")).await }
        });
        gate.entered().await;
        let busy = send(&app, post("k")).await;
        assert_eq!((busy.said().as_str(), busy.header("retry-after")), ("409 in-progress", Some("1")));
        gate.open(1);
        assert_eq!(first.await.unwrap().said(), "201");
        let long = |bytes| "k".repeat(bytes);
        assert_eq!(send(&app, post(&long(256))).await.said(), "400 malformed-key");
        assert_eq!(send(&app, request(Method::POST, "/", None, "{}")).await.said(), "400 missing-key");
        gate.open(1);
        assert_eq!(send(&app, post(&long(255))).await.said(), "201");
    }
}

// H32, H43: the handler's own word outranks the profile's table, and a panic is no answer.
#[tokio::test]
async fn a_handler_that_knows_better_says_so() {
    let early = async || (Outcome::abandon(), StatusCode::INTERNAL_SERVER_ERROR);
    let late = async || (Outcome::refuse(), StatusCode::BAD_REQUEST);
    let app = Router::new()
        .route("/early", axum::routing::post(early))
        .route("/late", axum::routing::post(late))
        .layer(layer_of(Profile::stripe()));
    for (path, replayed) in [("/early", false), ("/late", true)] {
        for turn in [false, replayed] {
            assert_eq!(send(&app, request(Method::POST, path, Some(path), "")).await.is_replay(), turn, "{path}");
        }
    }
}

// H43: what is set after a profile holds.
#[tokio::test]
async fn a_profile_can_be_changed_in_parts() {
    let layer = layer_of(Profile::stripe()).methods([Method::PUT]).endpoint(idempotency::layer::EndpointKey::Path);
    let runs = Runs::default();
    let app = runs.app().layer(layer);
    for (path, replayed) in [("/a", false), ("/b", false), ("/a", true)] {
        assert_eq!(send(&app, request(Method::PUT, path, Some("k"), "{}")).await.is_replay(), replayed);
    }
    assert_eq!(send(&app, request(Method::PUT, "/a", Some("k"), "[]")).await.said(), "400 key-reused");
}
