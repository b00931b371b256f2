//! A real process that is stopped past its lease and goes on (S3; cases L12, D05).

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use idempotency::{Attempt, IdempotencyLayer, LeaseStore, Scope, SqliteStore};
use sqlx::SqlitePool;
use tokio::time::sleep;

use super::lab::answering;
use crate::support::http::{post, send};

const CHILD: &str = "IDEMPOTENCY_TEST_LEASED_CHILD";
const LEASE: Duration = Duration::from_secs(2);

async fn store_at(path: &std::path::Path) -> (SqlitePool, LeaseStore<sqlx::Sqlite>) {
    let pool = SqlitePool::connect_lazy_with(SqliteStore::connect_options(path));
    let store = LeaseStore::new(pool.clone()).await.unwrap().lease(LEASE).unwrap();
    store.migrate().await.unwrap();
    (pool, store)
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_past_its_lease_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.sqlite");
    let (pool, store) = store_at(&path).await;
    sqlx::query("CREATE TABLE effects (what TEXT NOT NULL)").execute(&pool).await.unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["leased::process::a_child_that_is_stopped", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("running")), "the child failed");
    let app = answering(store, "follower");
    // Alive, it renews.
    sleep(LEASE * 3 / 2).await;
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress");
    signal("-STOP", child.id());
    sleep(LEASE * 3 / 2).await;
    let followed = send(&app, post("k")).await;
    signal("-CONT", child.id());
    assert_eq!(followed.text(), "follower");
    std::fs::write(folder.path().join("go"), "").unwrap();
    let told: Vec<_> = lines.filter(|line| line.contains("told")).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(told, ["told LeaseLost", "told 409 lease-lost"]);
    assert!(send(&app, post("k")).await.is_replay());
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&pool).await.unwrap();
    assert_eq!(effects, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by a_process_that_was_stopped_past_its_lease_changes_nothing"]
async fn a_child_that_is_stopped() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let path = std::path::PathBuf::from(path);
    let go = path.with_file_name("go");
    let (pool, store) = store_at(&path).await;
    let app = Router::new().fallback(async move |attempt: Attempt| {
        println!("running");
        while !go.exists() {
            sleep(Duration::from_millis(20)).await;
        }
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO effects (what) VALUES ('zombie')").execute(&mut *tx).await.unwrap();
        println!("told {:?}", attempt.guard(&mut tx).await.unwrap_err().kind());
        let _ = tx.commit().await;
        "zombie"
    });
    let app = app.layer(IdempotencyLayer::new(store, Scope::shared()));
    println!("told {}", send(&app, post("k")).await.said());
}
