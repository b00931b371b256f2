//! Logs that a reader can read from their start, and what can be done to the way there.

use std::future::Future;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use futures_util::StreamExt;
use tempfile::NamedTempFile;
use tokio::time::sleep;

use super::child::Log;
use crate::support::brokers::{Broker, Flow, Gate};

/// A broker's log.
pub trait Readable: Sync {
    fn way(&self) -> Log;
    /// What events carry as their topic.
    fn topic(&self) -> String;
    /// The key and the number of each copy.
    fn read(&self) -> impl Future<Output = Vec<(String, u64)>> + Send;
    /// Cuts what is on its way there.
    fn cut(&self) -> impl Future<Output = ()> + Send;
}

pub struct FileLog(NamedTempFile);

impl FileLog {
    pub fn new() -> Self {
        Self(NamedTempFile::new().unwrap())
    }
}

impl Readable for FileLog {
    fn way(&self) -> Log {
        Log::File(self.0.path().to_str().unwrap().to_owned())
    }

    fn topic(&self) -> String {
        "file".to_owned()
    }

    async fn read(&self) -> Vec<(String, u64)> {
        let text = std::fs::read_to_string(self.0.path()).unwrap();
        text.lines()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(key, n)| (key.to_owned(), n.parse().unwrap()))
            .collect()
    }

    async fn cut(&self) {}
}

pub struct NatsLog {
    name: String,
    gate: Gate,
    context: jetstream::Context,
}

impl NatsLog {
    pub async fn new() -> Self {
        let name = format!("order-{}", uuid::Uuid::new_v4().simple());
        let context = jetstream::new(async_nats::connect(Broker::Nats.url()).await.unwrap());
        let subjects = vec![format!("{name}.>")];
        // A window of the broker's own that is shorter than a stall: order shall not depend on it (case B40).
        let duplicate_window = Duration::from_millis(500);
        let config = stream::Config { name: name.clone(), subjects, duplicate_window, ..stream::Config::default() };
        context.create_stream(config).await.unwrap();
        Self { name, gate: Gate::before(&Broker::Nats.address()).await, context }
    }
}

impl Readable for NatsLog {
    fn way(&self) -> Log {
        Log::Nats(format!("nats://127.0.0.1:{}", self.gate.port()))
    }

    fn topic(&self) -> String {
        format!("{}.happened", self.name)
    }

    async fn read(&self) -> Vec<(String, u64)> {
        let mut stream = self.context.get_stream(&self.name).await.unwrap();
        let messages = stream.info().await.unwrap().state.messages;
        let messages = usize::try_from(messages).unwrap();
        let config = jetstream::consumer::pull::OrderedConfig::default();
        let consumer = stream.create_consumer(config).await.unwrap();
        let read = consumer.messages().await.unwrap().take(messages).map(|message| {
            let message = message.unwrap();
            let key = message.headers.as_ref().unwrap().get("ce-subject").unwrap().as_str().to_owned();
            (key, String::from_utf8_lossy(&message.payload).parse().unwrap())
        });
        tokio::time::timeout(Duration::from_secs(60), read.collect()).await.expect("the whole log")
    }

    async fn cut(&self) {
        // Answers stay out first: what was sent is written, and nobody knows.
        self.gate.set(Flow::NoAnswers);
        sleep(Duration::from_millis(50)).await;
        self.gate.set(Flow::Cut);
        sleep(Duration::from_millis(200)).await;
        self.gate.set(Flow::Open);
    }
}
