//! What is told before a database is asked, and what is told of one that cannot be reached.

use std::time::{Duration, Instant};

use super::{code, json, text, tool};
use crate::service::Engine;

/// Nobody is there.
const NOWHERE: &str = "postgres://postgres@127.0.0.1:1/none";
const ID: &str = "6d5e4f30-4c1e-4b7e-9f53-2f6b4f0f6b1e";

#[test]
fn wrong_usage_is_told_before_anybody_is_asked() {
    let long = "k".repeat(256);
    for wrong in [
        &["find", ""][..],
        &["find", "a,b"],
        &["find", "k\u{fc}"],
        &["find", &long],
        &["--scope", "", "find", "k1"],
        &["--yes", "settle", "k1", "--status", "201", "--body", "/no/such/file"],
        &["--yes", "settle", "k1", "--status", "201", "--header", "no field"],
        &["--yes", "settle", "k1", "--status", "199"],
        // It would be replayed, and break the message.
        &["--yes", "settle", "k1", "--status", "201", "--header", "Content-Length: 7"],
        &["--yes", "settle", "k1", "--status", "201", "--header", "connection: x-a", "--header", "x-a: 1"],
        &["--yes", "settle", "k1", "--status", "204", "--body", "Cargo.toml"],
        &["--yes", "settle", "k1", "--status", "201", "--retention", "1w"],
        &["list-stuck", "--limit", "0"],
        &["list-stuck", "--older-than", "4294967295d"],
        &["outbox", "redrive"],
        &["outbox", "redrive", "--all", "--topic", "t"],
        &["outbox", "discard", "--all", ID],
        &["outbox", "discard", "--dry-run", ID],
        &["outbox", "redrive", "--limit", "1", ID],
        &["outbox", "list", "--topic", "t"],
        &["outbox", "pause", ""],
        &["outbox", "pause", &long],
        &["outbox", "pause", "broker", "--key", "a\nb"],
        &["purge", "--batch", "0"],
        // Options that would have no effect: something else was meant.
        &["--scope", "alice", "--yes", "purge"],
        &["--scope", "alice", "list-stuck"],
        &["--scope", "alice", "stats"],
        &["--prefix", "p", "stats"],
        &["--leases", "outbox", "stats"],
    ] {
        let output = tool(NOWHERE, wrong);
        assert_eq!(code(&output), 2, "{wrong:?} {}", text(&output));
        assert!(output.stdout.is_empty(), "{wrong:?} {}", text(&output));
    }
    let redis = ["--store", "redis://127.0.0.1:1"];
    for wrong in [&["find", "k1"][..], &["--yes", "purge"], &["--yes", "migrate"], &["outbox", "stats"], &["schema"]] {
        let output = tool(NOWHERE, &[&redis, wrong].concat());
        assert_eq!(code(&output), 2, "{wrong:?} {}", text(&output));
    }
    for wrong in
        [&["--store", "redis://127.0.0.1:port", "stats"][..], &["--store", "redis://a", "--prefix", "{", "stats"]]
    {
        assert_eq!(code(&tool("", wrong)), 2, "{wrong:?}");
    }
}

#[test]
fn a_database_that_refuses_is_told_at_once_and_why() {
    for url in [NOWHERE, "mysql://idempotency@127.0.0.1:1/none"] {
        let begun = Instant::now();
        let output = tool(url, &["stats"]);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(code(&output), 4);
        assert!(text(&output).contains("refused"), "{}", text(&output));
    }
}

// H9
#[test]
fn a_url_that_cannot_be_read_is_wrong_usage_and_not_shown() {
    for url in [
        "postgres://u:s3cret@127.0.0.1:port/x",
        "mysql://u:s3cret@127.0.0.1:port/x",
        "postgres://u:s3cret@127.0.0.1/x?sslmode=s0me",
        "postgre://u:s3cret@127.0.0.1/x",
        "sqlite:x.sqlite?mode=s0me",
        "sqlite::memory:",
        "sqlite:x.sqlite?mode=memory",
    ] {
        let output = tool(url, &["stats"]);
        assert_eq!(code(&output), 2, "{url} {}", text(&output));
        assert!(!text(&output).contains("s3cret"), "{}", text(&output));
    }
    let refused = tool("postgres://u:s3cret@127.0.0.1:1/x", &["stats"]);
    assert_eq!((code(&refused), text(&refused).contains("s3cret")), (4, false));
}

// As sqlx reads it, and with it the services that have it.
#[test]
fn a_url_of_sqlite_may_have_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.sqlite").display().to_string();
    let url = format!("sqlite://{file}?mode=rwc");
    assert_eq!(code(&tool(&url, &["stats"])), 4, "only `migrate` makes a file");
    assert_eq!(code(&tool(&url, &["--yes", "migrate"])), 0);
    assert!(std::path::Path::new(&file).exists());
    assert_eq!(json(&tool(&format!("sqlite:{file}?mode=rw"), &["--json", "stats"]))["records"]["count"], 0);
    let read_only = format!("sqlite:{file}?mode=ro");
    assert_eq!(json(&tool(&read_only, &["--json", "stats"]))["records"]["count"], 0);
}

// H12: what is too long to be kept is shown as its digest, and that is what there is to be pasted.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_scope_is_named_as_it_is_shown() {
    let engine = Engine::sqlite();
    let service = engine.start("127.0.0.1:0", 4);
    let caller = "alice".repeat(40);
    let client = crate::support::service::Client::named(&caller);
    assert_eq!(client.pay(&service.address, "k1", 1250, "ok").await.unwrap().status, 201);
    let url = engine.url();
    let found = json(&tool(&url, &["--json", "--scope", &caller, "find", "k1"]));
    let shown = found[0]["scope"].as_str().unwrap();
    assert!(shown.starts_with("sha256:"), "{shown}");
    assert_eq!(json(&tool(&url, &["--json", "--scope", shown, "find", "k1"]))[0]["scope"], *shown);
}
