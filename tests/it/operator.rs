//! The operator's tool, as a process.

mod answers;
mod messages;
mod output;
mod purge;
mod stats;
mod usage;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::service::Engine;
use crate::support::service::Client;

/// Runs the tool with nobody at its terminal.
fn tool(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_idempotency"))
        .args(arguments)
        .env("DATABASE_URL", url)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)))
}

/// A service with one payment under the key `k1`.
async fn paid(engine: &Engine) -> String {
    let service = engine.start("127.0.0.1:0", 10);
    let reply = Client::new().pay(&service.address, "k1", 1250, "ok").await.unwrap();
    assert_eq!(reply.status, 201);
    engine.url()
}

async fn looks_and_forgets(engine: Engine) {
    let url = paid(&engine).await;
    // What was done is said.
    let says = |arguments: &[&str]| text(&tool(&url, arguments)).trim().to_owned();
    let found = tool(&url, &["--scope", "alice", "--json", "find", "\"k1\""]);
    let records = json(&found);
    assert_eq!(code(&found), 0);
    let (state, status) = (&records[0]["state"], &records[0]["status"]);
    assert_eq!((state, status, records.as_array().unwrap().len()), (&"completed".into(), &201.into(), 1));
    assert_eq!(records[0]["endpoint"], "POST /payments");
    assert!(
        says(&["--scope", "alice", "find", "k1"]).starts_with("completed key \"k1\" of \"alice\", POST /payments;")
    );
    // Another scope, another key, another endpoint.
    assert_eq!(code(&tool(&url, &["--scope", "bob", "find", "k1"])), 1);
    assert_eq!(code(&tool(&url, &["find", "k1"])), 1);
    assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k2"])), 1);
    assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k1", "--endpoint", "POST /transfers"])), 1);
    let nothing = tool(&url, &["--json", "list-stuck", "--older-than", "0s"]);
    assert_eq!((code(&nothing), text(&nothing).contains("nothing matched")), (1, true), "{}", text(&nothing));
    // A finished key is neither freed nor given another answer.
    let release = tool(&url, &["--scope", "alice", "--yes", "release", "k1"]);
    assert_eq!(code(&release), 3, "{}", text(&release));
    let settle = tool(&url, &["--scope", "alice", "--yes", "settle", "k1", "--status", "201"]);
    assert_eq!(code(&settle), 3, "{}", text(&settle));
    // Nothing changes before somebody has said yes.
    let forget = tool(&url, &["--scope", "alice", "forget", "k1"]);
    assert_eq!(code(&forget), 3, "{}", text(&forget));
    assert!(text(&forget).contains("completed key \"k1\""), "{}", text(&forget));
    assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k1"])), 0);
    assert_eq!(says(&["--scope", "alice", "--yes", "--json", "forget", "k1"]), r#"{"forgotten":true}"#);
    assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k1"])), 1);
    // Nothing has expired.
    let purge = tool(&url, &["--yes", "--json", "purge"]);
    assert_eq!((code(&purge), json(&purge)["deleted"].as_u64()), (1, Some(0)));
    assert_eq!(says(&["--yes", "migrate"]), "migrated");
    assert_eq!(code(&tool(&url, &["migrate"])), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_found_and_forgotten_on_sqlite() {
    looks_and_forgets(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_found_and_forgotten_on_postgres() {
    looks_and_forgets(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_found_and_forgotten_on_mariadb() {
    looks_and_forgets(Engine::mysql().await).await;
}

// S8
#[tokio::test(flavor = "multi_thread")]
async fn a_running_key_on_postgres_shows_its_session_and_ends_with_it() {
    let engine = Engine::postgres().await;
    let service = engine.start("127.0.0.1:0", 10);
    let address = service.address.clone();
    let first = tokio::spawn(async move { Client::new().pay(&address, "slow", 1250, "slow:8000").await });
    let url = engine.url();
    let stuck = || tool(&url, &["--json", "list-stuck", "--older-than", "0s"]);
    let mut listed = stuck();
    while code(&listed) == 1 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        listed = stuck();
    }
    assert_eq!(json(&listed)[0]["state"], "running");
    assert!(json(&listed)[0]["holder"]["pid"].as_i64().unwrap() > 0);
    let human = text(&tool(&url, &["list-stuck", "--older-than", "0s"]));
    assert!(human.contains("held by database session") && human.contains(", open for"), "{human}");
    let scoped = |arguments: &[&str]| tool(&url, &[&["--scope", "alice", "--yes"], arguments].concat());
    let unnamed = scoped(&["find", "slow"]);
    assert_eq!((code(&unnamed), text(&unnamed).contains("--endpoint")), (1, true), "{}", text(&unnamed));
    let endpoint = ["slow", "--endpoint", "POST /payments"];
    let refused = scoped(&[&["release"], &endpoint[..]].concat());
    assert_eq!(code(&refused), 3, "{}", text(&refused));
    let ended = scoped(&[&["release", "--terminate"], &endpoint[..]].concat());
    assert_eq!((code(&ended), &*text(&ended)), (0, "terminated\n"));
    assert_eq!(first.await.unwrap().unwrap().status.as_u16() / 100, 5);
    // Nothing was kept, and the key is free.
    assert_eq!(Client::new().amounts(&service.address).await, [0; 0]);
    assert_eq!(Client::new().pay(&service.address, "slow", 1250, "ok").await.unwrap().status, 201);
}

// S8: Postgres shows since when a session works to members of a role alone. Such a session is listed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_key_is_listed_for_a_role_that_sees_little() {
    let engine = Engine::postgres().await;
    let service = engine.start("127.0.0.1:0", 10);
    let (url, address) = (engine.url(), service.address.clone());
    let role = format!("r_{}", uuid::Uuid::new_v4().simple());
    stats::run(&url, format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")).await;
    let (_, place) = url.split_once('@').unwrap();
    let theirs = format!("postgres://{role}@{place}");
    assert_eq!(code(&tool(&theirs, &["list-stuck"])), 1);
    let first = tokio::spawn(async move { Client::new().pay(&address, "slow", 1250, "slow:4000").await });
    let stuck = || tool(&theirs, &["--json", "list-stuck"]);
    let mut listed = stuck();
    while code(&listed) == 1 {
        assert!(!first.is_finished(), "it was not listed");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        listed = stuck();
    }
    let holder = &json(&listed)[0]["holder"];
    assert!(holder["pid"].as_i64().unwrap() > 0 && holder["open_for_seconds"].is_null(), "{holder}");
    let human = text(&tool(&theirs, &["list-stuck"]));
    assert!(human.contains("of another role"), "{human}");
    // Its own role sees that it is not old.
    assert_eq!(code(&tool(&url, &["list-stuck"])), 1);
    // It may not end it, and says so.
    let ends = ["--scope", "alice", "--yes", "release", "slow", "--terminate", "--endpoint", "POST /payments"];
    let ended = tool(&theirs, &ends);
    assert_eq!(code(&ended), 4, "{}", text(&ended));
    assert_eq!(first.await.unwrap().unwrap().status, 201);
    stats::run(&url, format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_lease_is_settled_by_hand_and_replayed() {
    let engine = Engine::postgres().await.keys("lease");
    let service = engine.start("127.0.0.1:0", 10);
    let (address, client) = (service.address.clone(), engine.client());
    tokio::spawn(async move { client.pay(&address, "slow", 1250, "slow:30000").await });
    let url = engine.url();
    let stuck = || tool(&url, &["--leases", "--json", "list-stuck", "--older-than", "0s"]);
    let mut listed = stuck();
    while code(&listed) == 1 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        listed = stuck();
    }
    service.kill();
    let scope = json(&listed)[0]["scope"].as_str().unwrap().to_owned();
    while json(&listed)[0]["state"] != "lapsed" {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        listed = stuck();
    }
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    std::fs::write(&body, r#"{"by":"hand"}"#).unwrap();
    let settle = ["settle", "slow", "--status", "201", "--header", "content-type: application/json", "--body"];
    let settle = [&["--leases", "--yes", "--scope", &scope], &settle[..], &[body.to_str().unwrap()]].concat();
    let settled = tool(&url, &settle);
    assert_eq!((code(&settled), &*text(&settled)), (0, "settled\n"));
    let service = engine.start("127.0.0.1:0", 10);
    let reply = engine.client().pay(&service.address, "slow", 1250, "slow:30000").await.unwrap();
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &br#"{"by":"hand"}"#[..]));
    assert!(reply.is_replay());
}

#[test]
fn what_is_wrong_is_said_by_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let missing = format!("sqlite:{}", folder.path().join("mistyped.sqlite").display());
    assert_eq!(code(&tool(&missing, &["find", "k1"])), 4);
    assert!(!folder.path().join("mistyped.sqlite").exists());
    assert_eq!(code(&tool("mongodb://a", &["find", "k1"])), 2);
    assert_eq!(code(&tool(&missing, &["no-such-command"])), 2);
    assert_eq!(code(&tool("postgres://127.0.0.1:1/none", &["find", "k1"])), 4);
    // A new file is made by `migrate` alone.
    assert_eq!(code(&tool(&missing, &["--yes", "migrate"])), 0);
    assert_eq!(code(&tool(&missing, &["find", "k1"])), 1);
    assert_eq!(code(&tool(&missing, &["find", ""])), 2);
    let schema = tool("", &["--schema", "app", "schema", "--engine", "postgres", "--version", "1"]);
    assert!(text(&schema).contains("CREATE TABLE \"app\".idempotency_keys"), "{}", text(&schema));
    assert_eq!(code(&tool("", &["schema", "--engine", "sqlite", "--version", "99"])), 1);
    assert_eq!(code(&tool("", &["schema"])), 2);
    let schema = tool("", &["--json", "schema", "--engine", "mysql"]);
    assert!(json(&schema).as_array().unwrap().len() >= 4);
    // Nothing that is wrong is sent to a database.
    for wrong in [
        &["outbox"][..],
        &["outbox", "redrive"],
        &["outbox", "redrive", "no-id"],
        &["outbox", "redrive", "--all", "--topic", "t"],
        &["outbox", "discard", "--all", "6d5e4f30-4c1e-4b7e-9f53-2f6b4f0f6b1e"],
        &["outbox", "discard", "--dry-run", "6d5e4f30-4c1e-4b7e-9f53-2f6b4f0f6b1e"],
        &["outbox", "list", "--topic", "t"],
        &["outbox", "pause"],
        &["--store", "redis://127.0.0.1:1", "outbox", "stats"],
        &["--leases", "inbox", "stats"],
        &["--schema", "app", "inbox", "stats"],
        &["inbox"],
        &["--store", "http://a", "stats"],
    ] {
        assert_eq!(code(&tool(&missing, wrong)), 2, "{wrong:?}");
    }
    assert_eq!(code(&tool("", &["stats"])), 2);
    // The tables of this file are there; those of another one are not, and nobody makes them.
    for look in [&["stats"][..], &["outbox", "stats"], &["inbox", "stats"]] {
        let (there, other) = (tool(&missing, look), tool("postgres://127.0.0.1:1/none", look));
        assert_eq!((code(&there), code(&other)), (0, 4), "{look:?} {}", text(&there));
    }
    let bare = folder.path().join("bare.sqlite");
    std::fs::write(&bare, "").unwrap();
    let bare = format!("sqlite:{}", bare.display());
    for look in
        [&["stats"][..], &["outbox", "stats"], &["outbox", "list"], &["outbox", "resume", "b"], &["inbox", "stats"]]
    {
        let output = tool(&bare, look);
        assert_eq!(code(&output), 4, "{look:?} {}", text(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_on_redis_are_found_by_their_endpoint() {
    let _calm = crate::support::redis::calm().await;
    let redis = std::env::var("REDIS_URL").unwrap();
    let engine = Engine::sqlite().keys(&redis);
    let service = engine.start("127.0.0.1:0", 10);
    let reply = engine.client().pay(&service.address, "k1", 1250, "ok").await.unwrap();
    assert_eq!(reply.status, 201);
    let scope = engine.caller();
    let find = |more: &[&str]| tool("", &[&["--store", &redis, "--scope", scope, "find", "k1"], more].concat());
    assert_eq!(code(&find(&[])), 2);
    let found = find(&["--endpoint", "POST /payments"]);
    assert_eq!(code(&found), 0, "{}", text(&found));
}
