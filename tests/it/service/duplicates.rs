//! Many requests with one key, over TCP.

use std::time::{Duration, Instant};

use axum::http::Method;
use tokio::task::JoinSet;

use super::Engine;
use crate::support::service::{Client, Reply};

async fn at_once(
    client: &Client,
    address: &str,
    count: u32,
    (key, amount, card): (&str, u32, &'static str),
) -> Vec<(Reply, Duration)> {
    let mut sending = JoinSet::new();
    for _ in 0..count {
        let (client, address, key) = (client.clone(), address.to_owned(), key.to_owned());
        sending.spawn(async move {
            let started = Instant::now();
            let reply = client.pay(&address, &key, amount, card).await.expect("an answer");
            (reply, started.elapsed())
        });
    }
    sending.join_all().await
}

// H20, H22, case C01
pub async fn fifty_identical_requests_make_one_payment(engine: Engine) {
    let service = engine.start("127.0.0.1:0", 10);
    let client = engine.client();
    for (round, card) in ["ok", "slow:100"].into_iter().enumerate() {
        let key = format!("fifty-{round}");
        let replies = at_once(&client, &service.address, 50, (&key, 1250, card)).await;
        let bodies: Vec<_> = replies.iter().filter(|(r, _)| r.status == 201).map(|(r, _)| r.body.clone()).collect();
        assert!(!bodies.is_empty());
        assert!(bodies.iter().all(|body| *body == bodies[0]), "two answers of one key");
        for (reply, _) in &replies {
            assert!(
                reply.status == 201 || (reply.status == 409 && reply.headers.contains_key("retry-after")),
                "{reply:?}"
            );
        }
        assert_eq!(client.amounts(&service.address).await.len(), round + 1);
        for _ in 0..5 {
            let replay = client.pay(&service.address, &key, 1250, card).await.unwrap();
            assert!(replay.is_replay());
            assert_eq!(replay.body, bodies[0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_identical_requests_make_one_payment_on_sqlite() {
    fifty_identical_requests_make_one_payment(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_identical_requests_make_one_payment_on_postgres() {
    fifty_identical_requests_make_one_payment(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_identical_requests_make_one_payment_on_mariadb() {
    fifty_identical_requests_make_one_payment(Engine::mysql().await).await;
}

// H46, case C28: duplicates hold no connection; other keys are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_duplicates_of_a_slow_request_disturb_nobody_with_a_pool_of_five() {
    let engine = Engine::postgres().await;
    let service = engine.start("127.0.0.1:0", 5);
    let client = engine.client();
    let address = service.address.clone();
    let slow = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.pay(&address, "slow", 1, "slow:3000").await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let flood = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { at_once(&client, &address, 1000, ("slow", 1, "slow:3000")).await }
    });
    let mut others = Vec::new();
    for number in 0..20 {
        let started = Instant::now();
        let other = client.pay(&address, &format!("other-{number}"), 2, "ok").await.unwrap();
        assert_eq!(other.status, 201);
        others.push(started.elapsed());
    }
    let flood = flood.await.unwrap();
    let mut times: Vec<_> = flood.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    others.sort_unstable();
    println!("1,000 duplicates: median {:?}, last {:?}; others: last {:?}", times[500], times[999], others[19]);
    assert!(flood.iter().all(|(reply, _)| reply.status == 409 && reply.headers.contains_key("retry-after")));
    assert!(!slow.is_finished(), "the duplicates were answered only after the first was done");
    assert_eq!(slow.await.unwrap().status, 201);
    assert_eq!(client.amounts(&address).await.len(), 21);
}

// H21, case C12
pub async fn another_body_is_refused_while_the_first_is_running(engine: Engine) {
    let service = engine.start("127.0.0.1:0", 10);
    let client = engine.client();
    let slow = tokio::spawn({
        let (client, address) = (client.clone(), service.address.clone());
        async move { client.pay(&address, "reused", 1, "slow:1500").await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(400)).await;
    let started = Instant::now();
    let reused = client.pay(&service.address, "reused", 2, "slow:1500").await.unwrap();
    let elapsed = started.elapsed();
    println!("422 after {elapsed:?}");
    assert_eq!(reused.status, 422);
    assert!(elapsed < Duration::from_millis(500), "{elapsed:?}");
    assert!(!slow.is_finished());
    assert_eq!(slow.await.unwrap().status, 201);
    // The same key on another endpoint is another operation (H11).
    let body = r#"{"amount": 1, "currency": "EUR", "card": "ok"}"#;
    let url = format!("http://{}/transfers", service.address);
    let transfer = client.send(Method::POST, &url, Some("reused"), body).await.unwrap();
    assert_eq!((transfer.status.as_u16(), transfer.is_replay()), (201, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_is_refused_while_the_first_is_running_on_sqlite() {
    another_body_is_refused_while_the_first_is_running(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_is_refused_while_the_first_is_running_on_postgres() {
    another_body_is_refused_while_the_first_is_running(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_is_refused_while_the_first_is_running_on_mariadb() {
    another_body_is_refused_while_the_first_is_running(Engine::mysql().await).await;
}

// The duplicates of a request that runs in *another* process are told at once, too (case C04).
pub async fn two_processes_share_their_keys(engine: Engine) {
    let one = engine.start("127.0.0.1:0", 5);
    let two = engine.start("127.0.0.1:0", 5);
    let client = engine.client();
    let slow = tokio::spawn({
        let (client, address) = (client.clone(), one.address.clone());
        async move { client.pay(&address, "shared", 1, "slow:1500").await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(400)).await;
    let started = Instant::now();
    assert_eq!(client.pay(&two.address, "shared", 1, "slow:1500").await.unwrap().status, 409);
    assert_eq!(client.pay(&two.address, "shared", 2, "slow:1500").await.unwrap().status, 422);
    assert!(started.elapsed() < Duration::from_millis(800));
    let first = slow.await.unwrap();
    let replay = client.pay(&two.address, "shared", 1, "slow:1500").await.unwrap();
    assert!(replay.is_replay());
    assert_eq!(replay.body, first.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_their_keys_on_sqlite() {
    two_processes_share_their_keys(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_their_keys_on_postgres() {
    two_processes_share_their_keys(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_their_keys_on_mariadb() {
    two_processes_share_their_keys(Engine::mysql().await).await;
}
