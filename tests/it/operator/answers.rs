//! Answers that are given by hand.

use super::stats::run;
use super::{code, json, paid, text, tool};
use crate::service::Engine;

/// An orphan of three days ago is settled and kept for a day from now on, not for what is left of a day three days ago.
async fn kept_from_now_on(engine: Engine, leases: bool) {
    let url = paid(&engine).await;
    let ago = match url.split_once(':').unwrap().0 {
        "sqlite" => "accepted_at - 3 * 86400000000",
        "postgres" => "accepted_at - interval '3 days'",
        _ => "accepted_at - INTERVAL 3 DAY",
    };
    let orphan = if leases {
        format!(
            "UPDATE idempotency_leases SET state = 0, held = 1, answer = NULL, accepted_at = {ago}, locked_until = {ago}"
        )
    } else {
        format!("UPDATE idempotency_keys SET state = 2, answer = NULL, accepted_at = {ago}")
    };
    run(&url, orphan).await;
    let at = |arguments: &[&str]| {
        let place: &[&str] = if leases { &["--leases"] } else { &[] };
        tool(&url, &[place, &["--scope", "alice"], arguments].concat())
    };
    let asked = text(&at(&["settle", "k1", "--status", "201"]));
    assert!(asked.contains("\nGive it the answer 201, kept for 24 h? [y/N]"), "{asked}");
    let settled = at(&["--yes", "settle", "k1", "--status", "201"]);
    assert_eq!(code(&settled), 0, "{}", text(&settled));
    let found = json(&at(&["--json", "find", "k1"]));
    let left = found[0]["expires_in_seconds"].as_f64().unwrap();
    assert!((86_300.0..86_500.0).contains(&left), "{found}");
    assert_eq!((&found[0]["state"], &found[0]["status"]), (&"completed".into(), &201.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_hand_is_kept_from_now_on_on_sqlite() {
    kept_from_now_on(Engine::sqlite(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_hand_is_kept_from_now_on_on_postgres() {
    kept_from_now_on(Engine::postgres().await, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_hand_is_kept_from_now_on_on_mariadb() {
    kept_from_now_on(Engine::mysql().await, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_hand_is_kept_from_now_on_as_a_lease() {
    kept_from_now_on(Engine::sqlite().keys("lease"), true).await;
}
