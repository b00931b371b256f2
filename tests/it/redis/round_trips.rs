//! What a request costs the server (S25).

use std::time::Duration;

use bytes::Bytes;
use idempotency::RedisStore;
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::redis::{Admin, alone, prefix, single, url};

/// The commands that clients send, as the server sees them; what scripts call does not count.
struct Monitor {
    lines: BufReader<TcpStream>,
    admin: Admin,
}

impl Monitor {
    async fn start() -> Self {
        let address = url().trim_start_matches("redis://").split('/').next().unwrap().to_owned();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"MONITOR\r\n").await.unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).await.unwrap();
        assert_eq!(first, "+OK\r\n");
        Self { lines, admin: Admin::single(&url()).await }
    }

    /// The names of the commands since the last call.
    async fn seen(&mut self) -> Vec<String> {
        let mark = uuid::Uuid::new_v4().to_string();
        self.admin.command::<String>(&["ECHO", &mark]).await;
        let mut seen = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).await.unwrap();
            if line.contains(&mark) {
                return seen;
            }
            let (_, rest) = line.split_once('[').unwrap();
            let (client, command) = rest.split_once("] ").unwrap();
            // The sentinels' servers are others; a script's own calls cost no round trip.
            if !client.ends_with("lua") {
                seen.push(command.split('"').nth(1).unwrap().to_uppercase());
            }
        }
    }
}

fn large() -> Answer {
    Answer { body: AnswerBody::Kept(Bytes::from(vec![7; 100_000])), ..answer("") }
}

async fn replay(store: &RedisStore, key: &str) -> Answer {
    match store.claim(&request(key, 1)).await.unwrap() {
        Verdict::Replay(record) => record.answer,
        other => panic!("not replayed: {other:?}"),
    }
}

// S25: two for a first request, one for a replay and every refusal, one more for a long answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_takes_two_round_trips_and_a_replay_one() {
    let _alone = alone().await;
    let store = single(&prefix()).build().unwrap();
    completed(&store, &request("warm", 1), answer("warm")).await;
    let mut monitor = Monitor::start().await;
    monitor.seen().await;

    completed(&store, &request("counted", 1), answer("done")).await;
    assert_eq!(monitor.seen().await, ["EVALSHA", "EVALSHA"]);
    assert_eq!(replay(&store, "counted").await, answer("done"));
    assert_eq!(monitor.seen().await, ["EVALSHA"]);
    assert!(matches!(store.claim(&request("counted", 2)).await, Ok(Verdict::Mismatch)));
    assert_eq!(monitor.seen().await, ["EVALSHA"]);

    completed(&store, &request("large", 1), large()).await;
    assert_eq!(monitor.seen().await, ["EVALSHA", "EVALSHA"]);
    assert!(replay(&store, "large").await == large());
    assert_eq!(monitor.seen().await, ["EVALSHA", "HMGET"]);
    // Case F16: a mismatch reads no answer.
    assert!(matches!(store.claim(&request("large", 2)).await, Ok(Verdict::Mismatch)));
    assert_eq!(monitor.seen().await, ["EVALSHA"]);
}

// One connection for all clones, and none of them waits for another's answer before it asks.
#[tokio::test(flavor = "multi_thread")]
async fn clones_share_one_connection() {
    let _alone = alone().await;
    let mut admin = Admin::single(&url()).await;
    let before: String = admin.command(&["CLIENT", "LIST"]).await;
    let store = single(&prefix()).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let store = store.clone().lease(Duration::from_secs(number + 1)).unwrap();
        tasks.spawn(async move { completed(&store, &request(&format!("{number}"), 1), answer("done")).await });
    }
    tasks.join_all().await;
    let after: String = admin.command(&["CLIENT", "LIST"]).await;
    assert_eq!(after.lines().count(), before.lines().count() + 1);
}
