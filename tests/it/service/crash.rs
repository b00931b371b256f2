//! The process is killed in the middle; the retry finds the truth (cases L08, T01).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::Method;
use bytes::Bytes;
use tokio::task::JoinSet;

use super::Engine;
use crate::support::service::Client;

async fn a_kill_in_the_middle_leaves_no_row_and_a_free_key(engine: Engine) {
    let service = engine.start("127.0.0.1:0", 5);
    let client = engine.client();
    let address = service.address.clone();
    let cut = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.pay(&address, "killed", 7, "slow:500").await }
    });
    tokio::time::sleep(Duration::from_millis(250)).await;
    service.kill();
    assert!(cut.await.unwrap().is_none(), "the answer came before the kill");
    let service = engine.start(&address, 5);
    assert!(client.amounts(&address).await.is_empty(), "a row of a request that was killed");
    let started = Instant::now();
    let retry = client.pay(&address, "killed", 7, "slow:500").await.unwrap();
    assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false));
    assert!(started.elapsed() < Duration::from_millis(2000), "the key was not free at once");
    assert_eq!(client.amounts(&address).await, [7]);
    drop(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_leaves_no_row_and_a_free_key_on_sqlite() {
    a_kill_in_the_middle_leaves_no_row_and_a_free_key(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_leaves_no_row_and_a_free_key_on_postgres() {
    a_kill_in_the_middle_leaves_no_row_and_a_free_key(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_leaves_no_row_and_a_free_key_on_mariadb() {
    a_kill_in_the_middle_leaves_no_row_and_a_free_key(Engine::mysql().await).await;
}

const KILLS: u32 = 9;
const LASTS: Duration = Duration::from_secs(12);

struct Load {
    client: Client,
    address: String,
    next: AtomicU32,
    stop: AtomicBool,
    attempts: AtomicU32,
    /// Every 201 of each operation, under its amount.
    answers: Mutex<HashMap<u32, Vec<Bytes>>>,
}

impl Load {
    /// One operation after the other, each under one key until it has an answer, and then once more.
    async fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let amount = self.next.fetch_add(1, Ordering::Relaxed);
            let card = ["ok", "ok", "ok", "slow:20"][amount as usize % 4];
            let mut answered = 0;
            let until = Instant::now() + Duration::from_secs(30);
            while answered < 2 {
                assert!(Instant::now() < until, "operation {amount} got no answer");
                self.attempts.fetch_add(1, Ordering::Relaxed);
                match self.client.pay(&self.address, &format!("operation-{amount}"), amount, card).await {
                    Some(reply) if reply.status == 201 => {
                        answered += 1;
                        self.answers.lock().unwrap().entry(amount).or_default().push(reply.body);
                    }
                    Some(reply) if reply.status == 409 || reply.status == 503 => {
                        assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Some(reply) => panic!("operation {amount}: {reply:?}"),
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        }
    }
}

// One row an operation, one answer a key, over kills at random moments.
pub async fn kills_under_load_leave_one_effect_an_operation(engine: Engine) {
    let mut service = engine.start("127.0.0.1:0", 10);
    let load = Arc::new(Load {
        client: engine.client(),
        address: service.address.clone(),
        next: AtomicU32::new(1),
        stop: AtomicBool::new(false),
        attempts: AtomicU32::new(0),
        answers: Mutex::default(),
    });
    let mut workers = JoinSet::new();
    for _ in 0..8 {
        let load = Arc::clone(&load);
        workers.spawn(async move { load.work().await });
    }
    for kill in 0..KILLS {
        // Not in step with anything.
        tokio::time::sleep(LASTS / (KILLS + 1) + Duration::from_millis(u64::from(kill * 37 % 100))).await;
        service.kill();
        service = engine.start(&load.address, 10);
    }
    tokio::time::sleep(LASTS / (KILLS + 1)).await;
    load.stop.store(true, Ordering::Relaxed);
    workers.join_all().await;
    let mut rows = load.client.amounts(&load.address).await;
    rows.sort_unstable();
    let answers = load.answers.lock().unwrap().clone();
    println!(
        "{} operations, {KILLS} kills, {} attempts, {} rows",
        answers.len(),
        load.attempts.load(Ordering::Relaxed),
        rows.len()
    );
    let mut expected: Vec<u64> = answers.keys().map(|amount| u64::from(*amount)).collect();
    expected.sort_unstable();
    assert_eq!(rows, expected, "rows and answered operations differ");
    assert!(answers.values().all(|bodies| bodies.iter().all(|body| *body == bodies[0])), "two answers of one key");
    assert!(answers.len() > 50, "the test did not load the service");
    assert_eq!(service.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
pub async fn kills_under_load_leave_one_effect_an_operation_on_sqlite() {
    kills_under_load_leave_one_effect_an_operation(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
pub async fn kills_under_load_leave_one_effect_an_operation_on_postgres() {
    kills_under_load_leave_one_effect_an_operation(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
pub async fn kills_under_load_leave_one_effect_an_operation_on_mariadb() {
    kills_under_load_leave_one_effect_an_operation(Engine::mysql().await).await;
}

// Stop accepting, finish requests, drain, exit 0: also a request whose client has left (H27).
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_service_finishes_what_runs() {
    let engine = Engine::sqlite();
    let service = engine.start("127.0.0.1:0", 5);
    let client = engine.client();
    let address = service.address.clone();
    let stays = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.pay(&address, "stays", 1, "slow:600").await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let exit = tokio::task::spawn_blocking(move || service.terminate());
    assert_eq!(stays.await.unwrap().status, 201);
    assert_eq!(exit.await.unwrap(), Some(0));
    let service = engine.start(&address, 5);
    assert!(client.pay(&address, "stays", 1, "slow:600").await.unwrap().is_replay());

    let leaves = tokio::spawn({
        let (client, address) = (engine.client(), address.clone());
        async move { client.pay(&address, "leaves", 2, "slow:600").await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    leaves.abort();
    assert_eq!(tokio::task::spawn_blocking(move || service.terminate()).await.unwrap(), Some(0));
    let service = engine.start(&address, 5);
    assert!(client.pay(&address, "leaves", 2, "slow:600").await.unwrap().is_replay());
    let url = format!("http://{address}/healthz");
    assert_eq!(client.send(Method::GET, &url, None, "").await.unwrap().status, 200);
    drop(service);
}
