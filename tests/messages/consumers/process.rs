//! Consumers as processes of their own, to be killed between any two steps. They are this very binary, run for one test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use sqlx::{MySql, Postgres, Sqlite};

/// Says to such a process what to consume: broker, queue, database, each by its name.
const TASK: &str = "IDEMPOTENCY_TEST_CONSUMER";

pub fn is_child() -> bool {
    std::env::var(TASK).is_ok()
}

/// The child's step is done; now it waits to be killed.
pub async fn say(step: &str) {
    println!("step: {step}");
    std::io::stdout().flush().unwrap();
    std::future::pending::<()>().await;
}

/// The body of such a process. In any other one it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_in_a_process_of_its_own() {
    let Ok(task) = std::env::var(TASK) else { return };
    match task.split(' ').collect::<Vec<_>>().as_slice() {
        ["nats", queue, place] => super::nats::processes_and_stops::<Postgres>(queue, place).await,
        ["rabbitmq", queue, place] => super::rabbitmq::processes_and_stops::<Sqlite>(queue, place).await,
        ["redis", queue, place] => super::redis_streams::processes_and_stops::<MySql>(queue, place).await,
        other => panic!("{other:?}"),
    }
}

/// A consumer in a process of its own.
pub struct Other(Child);

impl Other {
    /// Starts it and waits until it says that it has come so far.
    pub async fn comes_to(step: &'static str, broker: &str, queue: &str, place: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "consumers::process::a_consumer_in_a_process_of_its_own"])
            .env(TASK, format!("{broker} {queue} {place}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = tokio::task::spawn_blocking(move || {
            lines.map_while(Result::ok).any(|line| line.contains(&format!("step: {step}")))
        });
        assert!(said.await.unwrap(), "the other process has ended before it was {step}");
        Self(child)
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
