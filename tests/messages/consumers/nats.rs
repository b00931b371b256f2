//! NATS JetStream: pull consumers, acknowledged after the commit.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull::Config as Pull;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::{self, AckKind, Context, Message};
use futures_util::StreamExt;
use idempotency::inbox::source::{IdSource, Incoming};
use idempotency::inbox::{MessageId, Processed};
use sqlx::Postgres;

use super::engine::{Engine, Shop};
use super::handler::{Answer, Consumer, Runs, consumer, giving_up_after, soon};
use super::process::Other;
use crate::support::brokers::Broker;

const ERROR_DELAY: Duration = Duration::from_millis(200);

async fn connect() -> Context {
    let url = std::env::var("NATS_URL").expect("NATS_URL is not set: run the tests by tests/run");
    jetstream::new(async_nats::connect(url).await.unwrap())
}

/// A stream of its own, and one for what is put aside.
pub(super) struct Queue {
    pub(super) jetstream: Context,
    pub(super) name: String,
}

impl Queue {
    pub(super) async fn new() -> Self {
        let name = format!("t-{}", uuid::Uuid::new_v4().simple());
        let jetstream = connect().await;
        for name in [name.clone(), format!("{name}-dead")] {
            let config = jetstream::stream::Config { subjects: vec![name.clone()], name, ..Default::default() };
            jetstream.create_stream(config).await.unwrap();
        }
        Self { jetstream, name }
    }

    async fn at(name: &str) -> Self {
        Self { jetstream: connect().await, name: name.to_owned() }
    }

    pub(super) async fn send(&self, id: &str, body: &str) {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        let sent = self.jetstream.publish_with_headers(self.name.clone(), headers, body.to_owned().into()).await;
        sent.unwrap().await.unwrap();
    }

    /// The durable consumer that all processes share.
    pub(super) async fn durable(&self, ack_wait: Duration) -> PullConsumer {
        let config =
            Pull { durable_name: Some("shop".into()), ack_policy: AckPolicy::Explicit, ack_wait, ..Default::default() };
        let stream = self.jetstream.get_stream(&self.name).await.unwrap();
        stream.get_or_create_consumer("shop", config).await.unwrap()
    }

    async fn is_settled(&self) -> bool {
        let stream = self.jetstream.get_stream(&self.name).await.unwrap();
        let mut consumer: PullConsumer = stream.get_consumer("shop").await.unwrap();
        let info = consumer.info().await.unwrap();
        info.num_ack_pending == 0 && info.num_pending == 0
    }

    async fn dead(&self) -> Vec<String> {
        let mut dead = self.jetstream.get_stream(format!("{}-dead", self.name)).await.unwrap();
        let last = dead.info().await.unwrap().state.last_sequence;
        let mut texts = Vec::new();
        for sequence in 1..=last {
            let message = dead.get_raw_message(sequence).await.unwrap();
            texts.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        texts
    }
}

/// The recipe of the guide: what to tell the broker.
pub(super) async fn settle(queue: &Queue, message: &Message, answer: &Answer) -> Result<(), async_nats::Error> {
    match answer {
        Ok(Processed::First(()) | Processed::Duplicate) => message.ack().await,
        Ok(Processed::Busy { retry_after }) => message.ack_with(AckKind::Nak(Some(*retry_after))).await,
        Ok(Processed::Conflict | Processed::Poison) => put_aside(queue, message).await,
        Err(error) if !error.is_retryable() => put_aside(queue, message).await,
        Err(_) => message.ack_with(AckKind::Nak(Some(ERROR_DELAY))).await,
    }
}

/// Acknowledged only when the other stream has it. Its id there keeps a repetition out.
async fn put_aside(queue: &Queue, message: &Message) -> Result<(), async_nats::Error> {
    let mut headers = message.headers.clone().unwrap_or_default();
    headers.insert("Nats-Msg-Id", format!("dead-{}", message.info()?.stream_sequence));
    let subject = format!("{}-dead", queue.name);
    queue.jetstream.publish_with_headers(subject, headers, message.payload.clone()).await?.await?;
    message.ack().await
}

/// Consumes until the host drops it, and tells what it has told.
async fn consume(queue: Queue, durable: PullConsumer, consumer: Consumer<Message>, told: impl Fn(&Message, &Answer)) {
    let mut messages = durable.stream().max_messages_per_batch(1).messages().await.unwrap();
    while let Some(message) = messages.next().await {
        let message = message.unwrap();
        let answer = consumer.deliver(message.clone()).await;
        told(&message, &answer);
        settle(&queue, &message, &answer).await.unwrap();
    }
}

fn ids() -> IdSource {
    IdSource::broker("orders")
}

pub(super) async fn next(durable: &PullConsumer) -> Message {
    let mut messages = durable.stream().max_messages_per_batch(1).messages().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), messages.next()).await.expect("no message").unwrap().unwrap()
}

// M9, M2
#[tokio::test]
async fn a_message_is_named_by_its_header_or_by_its_place() {
    let _calm = Broker::Nats.calm().await;
    let queue = Queue::new().await;
    queue.send("evt_1", "a").await;
    queue.jetstream.publish(queue.name.clone(), "b".into()).await.unwrap().await.unwrap();
    let mut event = async_nats::HeaderMap::new();
    event.insert("ce-id", "caf%C3%A9");
    event.insert("ce-source", "/shop");
    queue.jetstream.publish_with_headers(queue.name.clone(), event, "c".into()).await.unwrap().await.unwrap();
    let durable = queue.durable(Duration::from_secs(30)).await;
    let expected = [("orders", "evt_1"), (&*format!("orders#{}", queue.name), "2")];
    for (source, id) in expected {
        let message = next(&durable).await;
        assert_eq!(ids().read(&message).unwrap(), MessageId::new(source, id).unwrap());
        assert_eq!(message.deliveries(), Some(1));
        message.ack().await.unwrap();
    }
    let event = next(&durable).await;
    assert_eq!(IdSource::cloud_events().read(&event).unwrap(), MessageId::new("/shop", "café").unwrap());
    assert_eq!(Incoming::payload(&event), b"c");
}

// M3, M9: redelivered while it runs, to another process. Nobody waits, and it runs once.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_runs_elsewhere_is_told_to_come_again_later() {
    let _calm = Broker::Nats.calm().await;
    let (queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "slow 2000").await;
    // Shorter than the handler takes: the broker delivers again while the first one runs.
    let durable = queue.durable(Duration::from_millis(600)).await;
    let (told, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let (shop, told) = (shop.again().await, told.clone());
        let service = consumer(&shop.inbox, ids(), &runs);
        let tell = move |_: &Message, answer: &Answer| {
            told.send((Instant::now(), format!("{answer:?}"))).unwrap();
        };
        consumers.push(tokio::spawn(consume(Queue::at(&queue.name).await, durable.clone(), service, tell)));
    }
    soon("everything is acknowledged", async || queue.is_settled().await.then_some(())).await;
    for consumer in consumers {
        consumer.abort();
    }
    let mut told = Vec::new();
    while let Ok(answer) = answers.try_recv() {
        told.push(answer);
    }
    assert_eq!(told.iter().filter(|(_, answer)| answer.contains("First")).count(), 1, "{told:?}");
    let busy: Vec<Instant> = told.iter().filter(|(_, answer)| answer.contains("Busy")).map(|(at, _)| *at).collect();
    assert!(!busy.is_empty() && busy.len() < 20, "{told:?}");
    for pair in busy.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(200), "the delay was not kept: {told:?}");
    }
    assert_eq!((runs.started(), runs.most_at_once(), shop.effects().await), (1, 1, vec!["slow 2000".to_owned()]));
}

/// What the process does that is killed: it processes one message and does not acknowledge it.
pub async fn processes_and_stops<DB: Engine>(queue: &str, place: &str) {
    let (queue, shop) = (Queue::at(queue).await, Shop::<DB>::at(place).await);
    let durable = queue.durable(Duration::from_secs(1)).await;
    let message = next(&durable).await;
    let answer = consumer(&shop.inbox, ids(), &Runs::default()).deliver(message).await;
    assert!(matches!(answer, Ok(Processed::First(()))), "{answer:?}");
    super::process::say("committed").await;
}

/// What a process tells that consumes after the one that was killed.
async fn after_a_kill(body: &str, step: &'static str) -> (Vec<String>, Vec<String>, usize) {
    let (queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", body).await;
    let durable = queue.durable(Duration::from_secs(1)).await;
    Other::comes_to(step, "nats", &queue.name, &shop.place).await.kill();
    let (told, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let service = consumer(&shop.inbox, ids(), &runs);
    let tell = move |message: &Message, answer: &Answer| {
        assert!(message.deliveries().unwrap() > 1, "it is a redelivery");
        told.send(format!("{answer:?}")).unwrap();
    };
    let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, durable, service, tell));
    soon("everything is acknowledged", async || queue.is_settled().await.then_some(())).await;
    consuming.abort();
    let mut told = Vec::new();
    while let Ok(answer) = answers.try_recv() {
        told.push(answer);
    }
    (told, shop.effects().await, runs.started())
}

// M4, case B16: killed between the commit and the acknowledgement.
#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_after_a_crash_behind_the_commit_is_a_duplicate() {
    let _calm = Broker::Nats.calm().await;
    let (told, effects, runs) = after_a_kill("a", "committed").await;
    assert_eq!((told, effects, runs), (vec!["Ok(Duplicate)".to_owned()], vec!["a".to_owned()], 0));
}

// M4, case B16: killed before the commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_after_a_crash_before_the_commit_runs() {
    let _calm = Broker::Nats.calm().await;
    let (told, effects, runs) = after_a_kill("stop", "written").await;
    // The server may take a moment to see that the killed one is gone.
    assert_eq!(told.last().unwrap(), "Ok(First(()))", "{told:?}");
    assert_eq!((effects, runs), (vec!["stop".to_owned()], 1));
}

// M6, M9: the broker's own count, and a stream for what has failed too often.
#[tokio::test(flavor = "multi_thread")]
async fn poison_goes_to_the_dead_letters_and_does_not_stop_the_others() {
    let _calm = Broker::Nats.calm().await;
    let (queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "fail a").await;
    queue.send("b", "b").await;
    let inbox = giving_up_after(&shop, 3).await;
    let durable = queue.durable(Duration::from_secs(5)).await;
    let service = consumer(&inbox, ids(), &runs);
    let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, durable, service, |_, _| {}));
    soon("everything is acknowledged", async || queue.is_settled().await.then_some(())).await;
    consuming.abort();
    assert_eq!(queue.dead().await, ["fail a"]);
    assert_eq!((shop.effects().await, runs.started()), (vec!["b".to_owned()], 4), "three failures and one success");
}

// M5: the same id with another body.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_goes_to_the_dead_letters() {
    let _calm = Broker::Nats.calm().await;
    let (queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    // The broker's own window would drop it.
    for body in ["a", "other"] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("ce-id", "1");
        headers.insert("ce-source", "/shop");
        let sent = queue.jetstream.publish_with_headers(queue.name.clone(), headers, body.into()).await;
        sent.unwrap().await.unwrap();
    }
    let durable = queue.durable(Duration::from_secs(5)).await;
    let service = consumer(&shop.inbox, IdSource::cloud_events(), &runs);
    let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, durable, service, |_, _| {}));
    soon("everything is acknowledged", async || queue.is_settled().await.then_some(())).await;
    consuming.abort();
    assert_eq!((queue.dead().await, shop.effects().await), (vec!["other".to_owned()], vec!["a".to_owned()]));
}

// Case B15: one acknowledgement a delivery, and the broker's own pace in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_whose_acknowledgement_fails_comes_again_at_the_brokers_pace() {
    let _calm = Broker::Nats.calm().await;
    const FAILS: usize = 3;
    let (queue, shop, runs) = (Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "a").await;
    let ack_wait = Duration::from_millis(1500);
    let service = consumer(&shop.inbox, ids(), &runs);
    let start = Instant::now();
    for n in 0..=FAILS {
        let own = Queue::at(&queue.name).await;
        let message = next(&own.durable(ack_wait).await).await;
        assert_eq!(message.deliveries(), Some(n as u64 + 1), "every delivery is settled once");
        let answer = service.deliver(message.clone()).await;
        assert_eq!(n == 0, matches!(answer, Ok(Processed::First(()))), "{answer:?}");
        if n < FAILS {
            let client = own.jetstream.client();
            client.drain().await.unwrap();
            let is_closed = async || client.publish("nobody", "".into()).await.is_err().then_some(());
            soon("the connection is closed", is_closed).await;
            assert!(settle(&own, &message, &answer).await.is_err());
        } else {
            settle(&own, &message, &answer).await.unwrap();
            // An acknowledgement is in the client's buffer until then, and would be gone with it.
            own.jetstream.client().flush().await.unwrap();
        }
    }
    assert!(start.elapsed() >= ack_wait * u32::try_from(FAILS).unwrap(), "faster than the broker delivers again");
    soon("everything is acknowledged", async || queue.is_settled().await.then_some(())).await;
    tokio::time::sleep(ack_wait * 2).await;
    assert!(queue.is_settled().await);
    assert_eq!((runs.started(), shop.effects().await.len()), (1, 1));
}
