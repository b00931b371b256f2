//! RabbitMQ, by a real server.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotency::outbox::publish::{Answer, Publisher, RabbitMqPublisher, Reason};
use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use super::events::{event, numbered, order, pending, topic};
use crate::support::brokers::{Broker, Flow, Gate, until};

const SOON: Duration = Duration::from_millis(700);

/// The test's own way to the broker, and a durable queue.
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) channel: Channel,
    _connection: Connection,
}

impl Queue {
    pub(super) async fn declared(arguments: &[(&str, AMQPValue)]) -> Self {
        let connection = Connection::connect(&Broker::RabbitMq.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let name = topic();
        channel.queue_declare(name.as_str().into(), QueueDeclareOptions::durable(), table).await.unwrap();
        Self { name, channel, _connection: connection }
    }

    pub(super) async fn messages(&self) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.channel
            .queue_declare(self.name.as_str().into(), options, FieldTable::default())
            .await
            .unwrap()
            .message_count()
    }

    /// An exchange that sends to this queue what has its name as routing key.
    async fn exchange(&self) -> String {
        let exchange = topic();
        self.has_exchange(&exchange).await;
        exchange
    }

    async fn has_exchange(&self, name: &str) {
        let queue = self.name.as_str();
        let options = ExchangeDeclareOptions::default();
        self.channel.exchange_declare(name.into(), ExchangeKind::Direct, options, FieldTable::default()).await.unwrap();
        let options = QueueBindOptions::default();
        self.channel.queue_bind(queue.into(), name.into(), queue.into(), options, FieldTable::default()).await.unwrap();
    }
}

pub(super) fn publisher() -> RabbitMqPublisher {
    RabbitMqPublisher::new(&Broker::RabbitMq.url()).unwrap()
}

pub(super) fn through(gate: &Gate) -> RabbitMqPublisher {
    RabbitMqPublisher::new(&format!("amqp://guest:guest@127.0.0.1:{}/%2f", gate.port())).unwrap().deadline(SOON)
}

// M21, M34
#[tokio::test]
async fn an_acked_event_is_in_the_queue_persistent_and_a_cloud_event() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let event = pending(order(&queue.name).header("tenant", "t1").header("CC", "elsewhere"), 0);
    assert_eq!(publisher().publish(event.clone()).await, Answer::ACKED);
    let options = BasicGetOptions { no_ack: true };
    let got = queue.channel.basic_get(queue.name.as_str().into(), options).await.unwrap().unwrap();
    assert_eq!(&got.delivery.data, event.event().payload_ref());
    let properties = &got.delivery.properties;
    let text = |text: &Option<lapin::types::ShortString>| text.as_ref().map(ToString::to_string);
    assert_eq!(text(properties.message_id()), Some(event.id().to_string()));
    assert_eq!(text(properties.content_type()).as_deref(), Some("application/json"));
    assert_eq!((text(properties.kind()).as_deref(), *properties.delivery_mode()), (Some("order.placed"), Some(2)));
    let headers = properties.headers().as_ref().unwrap().inner();
    let header = |name: &str| match headers.get(name) {
        Some(AMQPValue::LongString(text)) => Some(text.to_string()),
        _ => None,
    };
    assert_eq!(header("cloudEvents_id"), Some(event.id().to_string()));
    assert_eq!((header("cloudEvents_subject").as_deref(), header("tenant").as_deref()), (Some("c1"), Some("t1")));
    assert_eq!(header("CC"), None);
}

// case B20: the confirm of a returned message says Ack.
#[tokio::test]
async fn what_no_queue_takes_is_refused_and_only_that() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let publisher = publisher().exchange(&queue.exchange().await).unwrap();
    // A window of both kinds: none may take the other's answer.
    let nowhere = topic();
    let answers = join_all((0..200).map(|n| {
        let topic = if n % 2 == 0 { &queue.name } else { &nowhere };
        publisher.publish(event(topic))
    }))
    .await;
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n % 2 == 0 { Answer::ACKED } else { Answer::refused(Reason::Unroutable) };
        assert_eq!(*answer, expected, "{n}");
    }
    assert_eq!(queue.messages().await, 100);
}

// case B43: an exchange that goes away with the window out.
#[tokio::test]
async fn a_missing_exchange_tells_of_its_events_and_of_no_others() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let exchange = queue.exchange().await;
    let (to_queue, to_exchange) = (publisher(), publisher());
    let to_missing = to_queue.clone().exchange(&topic()).unwrap();
    let to_exchange = to_exchange.exchange(&exchange).unwrap();
    let missing = || join_all((0..20).map(|n| to_missing.publish(numbered(&queue.name, n))));
    let (others, unknown) = tokio::join!(join_all((0..100).map(|_| to_queue.publish(event(&queue.name)))), missing());
    assert!(others.iter().all(|answer| *answer == Answer::ACKED), "{others:?}");
    // Those that shared a channel go alone from then on, and are told.
    assert!(unknown.iter().all(|answer| is_in_doubt(*answer)), "{unknown:?}");
    let answers = missing().await;
    assert!(answers.iter().all(|answer| *answer == Answer::refused(Reason::Missing)), "{answers:?}");

    let all = || join_all((0..300).map(|n| to_exchange.publish(numbered(&queue.name, n))));
    let (answers, _) =
        tokio::join!(all(), queue.channel.exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default()),);
    assert!(answers.iter().all(|answer| answer.is_acked() || is_in_doubt(*answer)), "{answers:?}");
    let acked = answers.iter().filter(|answer| answer.is_acked()).count();
    let unknown = answers.iter().filter(|answer| **answer == Answer::Unknown).count();
    let kept = queue.messages().await as usize;
    assert!((100 + acked..=100 + acked + unknown).contains(&kept), "{kept} kept, {acked} acked, {unknown} unknown");
    let again = all().await;
    assert!(again.iter().all(|answer| *answer == Answer::refused(Reason::Missing)), "{again:?}");
    assert_eq!(queue.messages().await as usize, kept, "what is refused is not there");

    queue.has_exchange(&exchange).await;
    let answers = all().await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED), "{answers:?}");
    assert_eq!(queue.messages().await as usize, kept + 300);
}

/// What an exchange that is missing may mean for an event that shares its channel.
fn is_in_doubt(answer: Answer) -> bool {
    matches!(answer, Answer::Unknown | Answer::Refused { permanent: false, reason: Reason::Missing })
}

// M34: a full queue takes nothing at the moment.
#[tokio::test]
async fn a_full_queue_is_unavailable() {
    let _calm = Broker::RabbitMq.calm().await;
    let full =
        [("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", AMQPValue::LongString("reject-publish".into()))];
    let queue = Queue::declared(&full).await;
    let publisher = publisher();
    assert_eq!(publisher.publish(event(&queue.name)).await, Answer::ACKED);
    assert_eq!(publisher.publish(event(&queue.name)).await, Answer::UNAVAILABLE);
    assert_eq!(queue.messages().await, 1);
}

// case B61
#[tokio::test]
async fn too_large_is_refused_for_good_and_the_connection_stays() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let gate = Gate::before(&Broker::RabbitMq.address()).await;
    let publisher = through(&gate).deadline(Duration::from_secs(5));
    let sized = |bytes: usize| pending(order(&queue.name).bytes(vec![b'x'; bytes]), 0);
    // The broker of the tests takes 4 MiB.
    assert_eq!(publisher.publish(sized(5 << 20)).await, Answer::never(Reason::Rejected));
    let limited = publisher.clone().with_max_event_bytes(1 << 20);
    assert_eq!(limited.publish(sized(2 << 20)).await, Answer::never(Reason::TooLarge));
    let headed = |bytes: usize| pending(order(&queue.name).header("h", "x".repeat(bytes)), 0);
    assert_eq!(publisher.publish(headed(132_000)).await, Answer::never(Reason::TooLarge));
    assert_eq!(publisher.publish(headed(129_000)).await, Answer::ACKED);
    assert_eq!(publisher.publish(sized(3 << 20)).await, Answer::ACKED);
    assert_eq!(publisher.publish(pending(order(&"x".repeat(256)), 0)).await, Answer::never(Reason::Malformed));
    assert_eq!(gate.connections(), 1);
}

// M34: sent and not answered is unknown; what could not be sent is not.
#[tokio::test]
async fn an_answer_that_is_lost_is_unknown_and_a_lost_connection_is_made_anew() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let gate = Gate::before(&Broker::RabbitMq.address()).await;
    let publisher = through(&gate);
    assert_eq!(publisher.publish(event(&queue.name)).await, Answer::ACKED);
    gate.set(Flow::NoAnswers);
    assert_eq!(publisher.publish(event(&queue.name)).await, Answer::Unknown);
    until("the event in the queue", async || queue.messages().await == 2).await;
    gate.set(Flow::Open);
    assert_eq!(publisher.publish(event(&queue.name)).await, Answer::ACKED);

    // Half the window is out when the connection is cut.
    let cut = async {
        tokio::time::sleep(Duration::from_millis(4)).await;
        gate.set(Flow::Cut);
    };
    let (answers, ()) = tokio::join!(join_all((0..200).map(|_| publisher.publish(event(&queue.name)))), cut);
    assert!(
        answers.iter().all(|answer| matches!(*answer, Answer::Acked { .. } | Answer::Unknown | Answer::UNAVAILABLE))
    );
    until("the cut to be seen", async || publisher.publish(event(&queue.name)).await == Answer::UNAVAILABLE).await;
    let started = Instant::now();
    let refused = join_all((0..50).map(|_| publisher.publish(event(&queue.name)))).await;
    assert!(refused.iter().all(|answer| *answer == Answer::UNAVAILABLE), "{refused:?}");
    assert!(started.elapsed() < SOON * 2, "a crowd does not knock one after the other");
    let before = queue.messages().await;
    let acked = answers.iter().filter(|answer| answer.is_acked()).count();
    assert!(before as usize >= 3 + acked, "{before} in the queue, {acked} acked");
    gate.set(Flow::Open);
    until("the way back", async || publisher.publish(event(&queue.name)).await == Answer::ACKED).await;
    assert_eq!(gate.connections(), 2);
}

// M34, M40
#[tokio::test]
async fn a_paused_broker_is_unknown_and_a_killed_one_unavailable_and_both_come_back() {
    let server = Broker::RabbitMq.alone().await;
    let queue = Queue::declared(&[]).await;
    let name = queue.name.clone();
    let publisher = publisher().deadline(SOON);
    assert_eq!(publisher.publish(event(&name)).await, Answer::ACKED);
    server.does("pause").await;
    assert_eq!(publisher.publish(event(&name)).await, Answer::Unknown);
    server.does("resume").await;
    until("an ack", async || publisher.publish(event(&name)).await == Answer::ACKED).await;
    server.does("kill").await;
    until("the connection to be lost", async || publisher.publish(event(&name)).await == Answer::UNAVAILABLE).await;
    server.does("start").await;
    until("the way back", async || publisher.publish(event(&name)).await == Answer::ACKED).await;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let connection = Connection::connect(&Broker::RabbitMq.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let queue = channel.queue_declare(name.as_str().into(), options, FieldTable::default()).await.unwrap();
    assert!(queue.message_count() >= 3, "what was acked has outlived the broker");
}

#[test]
fn a_uri_that_is_none_is_said_at_once() {
    assert!(RabbitMqPublisher::new("redis://127.0.0.1").is_err());
    assert!(RabbitMqPublisher::new("amqp://127.0.0.1:5672/%2f").unwrap().exchange(&"x".repeat(256)).is_err());
}
