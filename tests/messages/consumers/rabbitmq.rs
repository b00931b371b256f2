//! RabbitMQ: manual acknowledgements, after the commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use idempotency::inbox::Processed;
use idempotency::inbox::source::{IdSource, Incoming};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions, BasicRejectOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use sqlx::{Postgres, Sqlite};

use super::engine::{Engine, Shop};
use super::handler::{Answer, Consumer, Runs, consumer, giving_up_after, soon};
use super::process::Other;
use crate::support::brokers::Broker;

/// Between these a message is held before it is given back: the queue would deliver it again at once.
const HOLD: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
const ERROR_HOLD: Duration = Duration::from_millis(200);

async fn connect() -> (Connection, Channel) {
    let url = std::env::var("AMQP_URL").expect("AMQP_URL is not set: run the tests by tests/run");
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(1, BasicQosOptions::default()).await.unwrap();
    (connection, channel)
}

/// A queue of its own, and one for what is put aside.
pub(super) struct Queue {
    pub(super) name: String,
    _connection: Connection,
    channel: Channel,
}

impl Queue {
    /// A quorum queue: it counts deliveries.
    pub(super) async fn quorum() -> Self {
        Self::new("quorum").await
    }

    async fn classic() -> Self {
        Self::new("classic").await
    }

    async fn new(kind: &str) -> Self {
        let name = format!("t-{}", uuid::Uuid::new_v4().simple());
        let queue = Self::at(&name).await;
        let text = |text: &str| AMQPValue::LongString(text.as_bytes().to_vec().into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text(kind));
        arguments.insert("x-dead-letter-exchange".into(), text(""));
        arguments.insert("x-dead-letter-routing-key".into(), text(&queue.dead()));
        for (name, arguments) in [(queue.dead(), FieldTable::default()), (name, arguments)] {
            queue.channel.queue_declare(name.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
        }
        queue
    }

    async fn at(name: &str) -> Self {
        let (connection, channel) = connect().await;
        Self { name: name.to_owned(), _connection: connection, channel }
    }

    fn dead(&self) -> String {
        format!("{}-dead", self.name)
    }

    async fn send(&self, id: &str, body: &str) {
        let properties = BasicProperties::default().with_message_id(id.into()).with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        let sent =
            self.channel.basic_publish("".into(), self.name.clone().into(), options, body.as_bytes(), properties);
        sent.await.unwrap().await.unwrap();
    }

    /// Messages that nobody has in hand.
    async fn waiting(&self, name: &str) -> u32 {
        let (_connection, channel) = connect().await;
        let passive = QueueDeclareOptions { passive: true, durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.into(), passive, FieldTable::default()).await.unwrap().message_count()
    }

    async fn deliveries(&self) -> lapin::Consumer {
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        self.channel.basic_consume(self.name.clone().into(), "".into(), options, arguments).await.unwrap()
    }

    pub(super) async fn next(&self) -> Arc<Delivery> {
        let mut deliveries = self.deliveries().await;
        let delivery = tokio::time::timeout(Duration::from_secs(20), deliveries.next()).await.expect("no message");
        Arc::new(delivery.unwrap().unwrap())
    }
}

/// The recipe of the guide. `Ok(false)` of an acknowledgement: its channel is gone, and the message comes again.
async fn settle(message: &Delivery, answer: &Answer) -> lapin::Result<bool> {
    let put_aside = BasicRejectOptions { requeue: false };
    match answer {
        Ok(Processed::First(()) | Processed::Duplicate) => message.ack(BasicAckOptions::default()).await,
        Ok(Processed::Busy { retry_after }) => {
            tokio::time::sleep((*retry_after).clamp(HOLD.0, HOLD.1)).await;
            // Newer quorum queues count what is rejected and not this.
            message.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await
        }
        // The queue's own exchange for dead letters takes it.
        Ok(Processed::Conflict | Processed::Poison) => message.reject(put_aside).await,
        Err(error) if !error.is_retryable() => message.reject(put_aside).await,
        Err(_) => {
            tokio::time::sleep(ERROR_HOLD).await;
            message.reject(BasicRejectOptions { requeue: true }).await
        }
    }
}

/// Consumes until the host drops it, and tells what it has told.
async fn consume(queue: Queue, consumer: Consumer<Arc<Delivery>>, told: impl Fn(&Delivery, &Answer)) {
    let mut deliveries = queue.deliveries().await;
    while let Some(delivery) = deliveries.next().await {
        let message = Arc::new(delivery.unwrap());
        let answer = consumer.deliver(Arc::clone(&message)).await;
        told(&message, &answer);
        assert!(settle(&message, &answer).await.unwrap());
    }
}

fn ids() -> IdSource {
    IdSource::broker("orders")
}

type Told = tokio::sync::mpsc::UnboundedReceiver<(Instant, Option<u64>, String)>;

/// Consumes on a task, as another process does; gives out what it tells.
async fn consuming<DB: Engine>(queue: &Queue, shop: &Shop<DB>, runs: &Runs) -> (tokio::task::JoinHandle<()>, Told) {
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let service = consumer(&shop.again().await.inbox, ids(), runs);
    let told_by = move |message: &Delivery, answer: &Answer| {
        let _ = tell.send((Instant::now(), message.deliveries(), format!("{answer:?}")));
    };
    (tokio::spawn(consume(Queue::at(&queue.name).await, service, told_by)), told)
}

async fn until_last(told: &mut Told, last: &str) -> Vec<(Instant, Option<u64>, String)> {
    let mut all = Vec::new();
    while let Ok(Some(answer)) = tokio::time::timeout(Duration::from_secs(20), told.recv()).await {
        let is_last = answer.2 == last;
        all.push(answer);
        if is_last {
            return all;
        }
    }
    panic!("never {last}: {all:?}");
}

// M3, M9: its channel is gone while its handler runs, and another process gets the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_runs_elsewhere_is_held_and_given_back() {
    let _calm = Broker::RabbitMq.calm().await;
    let (queue, shop, runs) = (Queue::quorum().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "slow 2000").await;
    let (connection, channel) = connect().await;
    let first = Queue { name: queue.name.clone(), _connection: connection, channel };
    let message = first.next().await;
    let working = {
        let (service, message) = (consumer(&shop.inbox, ids(), &runs), Arc::clone(&message));
        tokio::spawn(async move { service.deliver(message).await })
    };
    soon("the handler runs", async || (runs.started() == 1).then_some(())).await;
    first._connection.close(200, "".into()).await.unwrap();

    let (other, mut told) = consuming(&queue, &shop, &runs).await;
    let told = until_last(&mut told, "Ok(Duplicate)").await;
    let answer = working.await.unwrap();
    assert!(matches!(answer, Ok(Processed::First(()))), "{answer:?}");
    assert!(!message.ack(BasicAckOptions::default()).await.unwrap_or(false), "its channel is gone");
    assert!((2..=20).contains(&(told.len() - 1)), "held for 100 ms to 1 s each time: {told:?}");
    for pair in told.windows(2) {
        assert!(pair[0].2.contains("Busy") && pair[1].0 - pair[0].0 >= HOLD.0, "{told:?}");
    }
    soon("the queue is empty", async || (queue.waiting(&queue.name).await == 0).then_some(())).await;
    other.abort();
    assert_eq!((runs.started(), shop.effects().await), (1, vec!["slow 2000".to_owned()]));
}

/// What the process does that is killed: it processes one message and does not acknowledge it.
pub async fn processes_and_stops<DB: Engine>(queue: &str, place: &str) {
    let (queue, shop) = (Queue::at(queue).await, Shop::<DB>::at(place).await);
    let answer = consumer(&shop.inbox, ids(), &Runs::default()).deliver(queue.next().await).await;
    assert!(matches!(answer, Ok(Processed::First(()))), "{answer:?}");
    super::process::say("committed").await;
}

// M4, case B16: killed between the commit and the acknowledgement, and before the commit. On SQLite.
#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_after_a_crash_has_one_effect() {
    let _calm = Broker::RabbitMq.calm().await;
    for (body, step, told_last, own_runs) in
        [("a", "committed", "Ok(Duplicate)", 0), ("stop", "written", "Ok(First(()))", 1)]
    {
        let (queue, shop, runs) = (Queue::classic().await, Shop::<Sqlite>::new().await, Runs::default());
        queue.send("a", body).await;
        Other::comes_to(step, "rabbitmq", &queue.name, &shop.place).await.kill();
        let (consumer, mut told) = consuming(&queue, &shop, &runs).await;
        let told = until_last(&mut told, told_last).await;
        assert!(told.iter().all(|(_, deliveries, _)| deliveries.is_none()), "a classic queue does not count");
        soon("the queue is empty", async || (queue.waiting(&queue.name).await == 0).then_some(())).await;
        consumer.abort();
        assert_eq!((runs.started(), shop.effects().await), (own_runs, vec![body.to_owned()]), "{step}: {told:?}");
    }
}

// M6, M9: the count of a quorum queue, and its dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn poison_goes_to_the_dead_letters_and_does_not_stop_the_others() {
    let _calm = Broker::RabbitMq.calm().await;
    let (queue, shop, runs) = (Queue::quorum().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "fail a").await;
    queue.send("b", "b").await;
    let service = consumer(&giving_up_after(&shop, 3).await, ids(), &runs);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, service, move |message, answer| {
        let _ = tell.send((message.deliveries(), format!("{answer:?}")));
    }));
    soon("it is put aside", async || (queue.waiting(&queue.dead()).await == 1).then_some(())).await;
    soon("the queue is empty", async || (queue.waiting(&queue.name).await == 0).then_some(())).await;
    consuming.abort();
    let mut of_poison = Vec::new();
    while let Ok((deliveries, answer)) = told.try_recv() {
        if !answer.contains("First") {
            of_poison.push((deliveries, answer));
        }
    }
    let counts: Vec<Option<u64>> = of_poison.iter().map(|(deliveries, _)| *deliveries).collect();
    assert_eq!(counts, [Some(1), Some(2), Some(3), Some(4)], "{of_poison:?}");
    let dead = Queue { name: queue.dead(), ..Queue::at(&queue.name).await }.next().await;
    assert_eq!((&*dead.data, dead.properties.message_id().as_ref().unwrap().as_str()), (&b"fail a"[..], "a"));
    assert_eq!((shop.effects().await, runs.started()), (vec!["b".to_owned()], 4), "three failures and one success");
}

// M6: where the queue does not count, the inbox does.
#[tokio::test(flavor = "multi_thread")]
async fn failures_on_a_classic_queue_are_counted_by_the_inbox() {
    let _calm = Broker::RabbitMq.calm().await;
    let (queue, shop, runs) = (Queue::classic().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "fail a").await;
    let service = consumer(&giving_up_after(&shop, 3).await, ids(), &runs);
    let consuming = tokio::spawn(consume(Queue::at(&queue.name).await, service, |_, _| {}));
    soon("it is put aside", async || (queue.waiting(&queue.dead()).await == 1).then_some(())).await;
    consuming.abort();
    assert_eq!((shop.effects().await.len(), runs.started()), (0, 3));
}

// M2: what has no id never will.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_an_id_goes_to_the_dead_letters_at_once() {
    let _calm = Broker::RabbitMq.calm().await;
    let (queue, shop, runs) = (Queue::quorum().await, Shop::<Postgres>::new().await, Runs::default());
    let options = BasicPublishOptions::default();
    let sent =
        queue.channel.basic_publish("".into(), queue.name.clone().into(), options, b"a", BasicProperties::default());
    sent.await.unwrap().await.unwrap();
    let (consumer, mut told) = consuming(&queue, &shop, &runs).await;
    soon("it is put aside", async || (queue.waiting(&queue.dead()).await == 1).then_some(())).await;
    consumer.abort();
    assert!(told.recv().await.unwrap().2.contains("Identity") && told.try_recv().is_err());
    assert_eq!(runs.started(), 0);
}

// Case B15: an acknowledgement that fails is not tried again on the spot; the next delivery is a duplicate.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_whose_acknowledgement_fails_comes_again_once_each_time() {
    let _calm = Broker::RabbitMq.calm().await;
    const FAILS: u64 = 3;
    let (queue, shop, runs) = (Queue::quorum().await, Shop::<Postgres>::new().await, Runs::default());
    queue.send("a", "a").await;
    let service = consumer(&shop.inbox, ids(), &runs);
    for n in 0..=FAILS {
        let (connection, channel) = connect().await;
        let own = Queue { name: queue.name.clone(), _connection: connection, channel };
        let message = own.next().await;
        assert_eq!(message.deliveries(), Some(n + 1), "every delivery is settled once");
        let answer = service.deliver(Arc::clone(&message)).await;
        assert_eq!(n == 0, matches!(answer, Ok(Processed::First(()))), "{answer:?}");
        if n < FAILS {
            own._connection.close(200, "".into()).await.unwrap();
            assert!(!settle(&message, &answer).await.unwrap_or(false), "its channel is gone");
        } else {
            assert!(settle(&message, &answer).await.unwrap());
        }
    }
    soon("the queue is empty", async || (queue.waiting(&queue.name).await == 0).then_some(())).await;
    assert_eq!((runs.started(), shop.effects().await.len()), (1, 1));
}
