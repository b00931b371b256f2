//! RabbitMQ, by a real server: what events that share a channel or a connection do to each other, which is nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotency::outbox::publish::{Answer, Publisher, RabbitMqPublisher, Reason};
use idempotency::outbox::relay::{Delivery, OnExhausted, Relay};
use idempotency::outbox::{Event, PendingEvent};
use idempotency::testing::outbox::Harness;
use lapin::ExchangeKind;
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions};
use lapin::types::FieldTable;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::events::{event, numbered, order, pending, topic};
use super::rabbitmq::{Queue, publisher, through};
use crate::support::brokers::{Broker, Flow, Gate, rabbitmqctl, until};
use crate::support::outbox_lab::{Lab, PostgresLab};

const DENIED: Answer = Answer::refused(Reason::Denied);

/// An exchange of topics that takes what begins with `good`, into this queue. The rest is forbidden.
struct Topics {
    queue: Queue,
    exchange: String,
}

impl Topics {
    async fn new() -> Self {
        let (queue, exchange) = (Queue::declared(&[]).await, topic());
        let (name, options) = (exchange.as_str().into(), ExchangeDeclareOptions::default());
        queue.channel.exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default()).await.unwrap();
        let (name, to) = (exchange.as_str().into(), queue.name.as_str().into());
        let options = QueueBindOptions::default();
        queue.channel.queue_bind(to, name, "#".into(), options, FieldTable::default()).await.unwrap();
        rabbitmqctl(&["set_topic_permissions", "-p", "/", "guest", &exchange, "^good", ".*"]).await;
        Self { queue, exchange }
    }

    async fn permit_all(&self) {
        rabbitmqctl(&["set_topic_permissions", "-p", "/", "guest", &self.exchange, ".*", ".*"]).await;
    }

    fn publisher(&self) -> RabbitMqPublisher {
        publisher().exchange(&self.exchange).unwrap()
    }

    /// The ids of what is in the queue, each as often as it is there.
    async fn take(&self) -> Vec<Uuid> {
        let mut ids = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(got) = self.queue.channel.basic_get(self.queue.name.as_str().into(), options).await.unwrap() {
            ids.push(got.delivery.properties.message_id().as_ref().unwrap().as_str().parse().unwrap());
        }
        ids
    }
}

fn distinct(ids: &[Uuid]) -> BTreeSet<Uuid> {
    ids.iter().copied().collect()
}

// M34, case B43: one topic is forbidden, and its neighbours are not.
#[tokio::test]
async fn a_topic_that_is_denied_takes_no_neighbour_along() {
    let _calm = Broker::RabbitMq.calm().await;
    let topics = Topics::new().await;
    let publisher = topics.publisher();
    let bad = event("bad.one");
    let mut expected = BTreeSet::new();
    for round in 0..3 {
        let mut window: Vec<Arc<PendingEvent>> = (0..50).map(|n| event(&format!("good.{n}"))).collect();
        expected.extend(window.iter().map(|event| event.id()));
        window.insert(20, bad.clone());
        let first = join_all(window.iter().map(|event| publisher.publish(event.clone()))).await;
        for (event, answer) in window.iter().zip(&first) {
            if event.id() == bad.id() {
                assert!(*answer == DENIED || (round == 0 && *answer == Answer::Unknown), "{round}: {answer:?}");
            } else {
                // It goes alone from the second time on.
                assert!(*answer == Answer::ACKED || (round == 0 && *answer == Answer::Unknown), "{round}: {answer:?}");
            }
        }
        let unknown = first.iter().filter(|answer| **answer == Answer::Unknown).count();
        assert!(round > 0 || unknown > 1, "they share a channel at first");
        let left = window.iter().zip(&first).filter(|(_, answer)| **answer == Answer::Unknown);
        let left: Vec<_> = left.map(|(event, _)| event.clone()).collect();
        let again = join_all(left.iter().map(|event| publisher.publish(event.clone()))).await;
        for (event, answer) in left.iter().zip(again) {
            assert_eq!(answer, if event.id() == bad.id() { DENIED } else { Answer::ACKED }, "{round}");
        }
    }
    assert_eq!(distinct(&topics.take().await), expected);

    topics.permit_all().await;
    assert_eq!(publisher.publish(bad.clone()).await, Answer::ACKED);
    assert_eq!(topics.take().await, [bad.id()]);
}

// M34, M35: the same by a relay.
#[tokio::test]
async fn a_relay_blocks_or_buries_what_is_denied_and_publishes_the_rest() {
    let _calm = Broker::RabbitMq.calm().await;
    let topics = Topics::new().await;
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let good = |n: u32| Event::new("broker", format!("good.{n}"), "t", "/s").key(format!("key-{}", n % 40)).bytes("x");
    let bad = || Event::new("broker", "bad", "t", "/s").bytes("x");
    let behind = Event::new("broker", "good.behind", "t", "/s").key("blocked").bytes("x");
    let mut events: Vec<Event> = (0..200).map(good).collect();
    events.insert(30, bad().key("blocked"));
    events.insert(31, behind);
    events.insert(90, bad());
    let mut tx = lab.transaction().await;
    let ids = outbox.enqueue_all(&mut tx, &events).await.unwrap();
    tx.commit().await.unwrap();

    let delivery = Delivery::new().attempts(4).on_exhausted(OnExhausted::Block);
    let delivery = delivery.retry_after(Duration::from_millis(20), Duration::from_millis(50));
    let relay = Relay::new(outbox.clone()).publisher_with("broker", topics.publisher(), delivery);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = tokio::spawn(relay.run(async { drop(stopped.await) }));
    until("one to be blocked, one to be dead, and the others gone", async || {
        let stats = outbox.stats().await.unwrap();
        (stats.pending, stats.blocked, stats.dead) == (2, 1, 1)
    })
    .await;
    stop.send(()).unwrap();
    let counts = relay.await.unwrap().unwrap();
    assert_eq!((counts.published, counts.blocked, counts.dead, counts.left), (200, 1, 1, 0), "{counts:?}");
    let expected: BTreeSet<_> =
        (ids.iter().enumerate()).filter(|(n, _)| ![30, 31, 90].contains(n)).map(|(_, id)| *id).collect();
    let got = topics.take().await;
    assert_eq!(distinct(&got), expected);
    assert!(got.len() < 200 + 130, "{} copies of 200: neighbours suffer once", got.len());
}

// M34: each channel that the broker closes costs the connection a number for ever.
#[tokio::test]
async fn channels_that_the_broker_closes_do_not_use_the_connection_up() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let few = RabbitMqPublisher::new(&format!("{}?channel_max=5", Broker::RabbitMq.url())).unwrap();
    let to_missing = few.clone().exchange(&topic()).unwrap();
    for n in 0..30 {
        assert_eq!(to_missing.publish(event(&queue.name)).await, Answer::refused(Reason::Missing), "{n}");
    }
    let answers = join_all((0..20).map(|_| few.publish(event(&queue.name)))).await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED), "{answers:?}");
}

/// Stops a queue's process, or has it go on: what is routed there is confirmed after that.
async fn tell_queue(queue: &Queue, what: &str) {
    let name = &queue.name;
    let code = format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{name}\">>)), \
         ok = sys:{what}(amqqueue:get_pid(Q))."
    );
    rabbitmqctl(&["eval", &code]).await;
}

/// Makes channels, so that the first events of a window go out one by one. The next one leads all that follow.
async fn warmed_up(publisher: &RabbitMqPublisher, queue: &Queue) {
    let alone = publisher.clone().one_channel_each();
    let answers = join_all((0..WARM).map(|_| alone.publish(event(&queue.name)))).await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED), "{answers:?}");
}

const WARM: usize = 12;
/// So many batches are sent at once: the first ones have one event each.
const LEADER: usize = 8;

/// Publishes a window to `queue`, with this event at a place. Whose answer it is, the answer, and after how long.
async fn window(
    publisher: &RabbitMqPublisher,
    queue: &Queue,
    (at, other): (usize, &Arc<PendingEvent>),
) -> Vec<(bool, Answer, Duration)> {
    let started = Instant::now();
    join_all((0..40).map(|n| {
        let event = if n == at { other.clone() } else { event(&queue.name) };
        async move { (n == at, publisher.publish(event).await, started.elapsed()) }
    }))
    .await
}

// M36: a queue that is stuck holds up its own events.
#[tokio::test]
async fn a_queue_that_confirms_nothing_holds_nobody_else_up() {
    let _calm = Broker::RabbitMq.calm().await;
    let (queue, stuck) = (Queue::declared(&[]).await, Queue::declared(&[]).await);
    let publisher = publisher().deadline(Duration::from_secs(4));
    warmed_up(&publisher, &queue).await;
    tell_queue(&stuck, "suspend").await;
    for at in [LEADER, 20] {
        for (is_stuck, answer, after) in window(&publisher, &queue, (at, &event(&stuck.name))).await {
            assert_eq!(answer, if is_stuck { Answer::Unknown } else { Answer::ACKED }, "{at}");
            assert_eq!(after > Duration::from_secs(2), is_stuck, "{at}: {after:?}");
        }
    }
    // What was slow goes alone until it is confirmed: then nobody waits for it, not even for a moment.
    let (impatient, slow) = (publisher.clone().deadline(Duration::from_millis(700)), event(&stuck.name));
    let mut worst = Vec::new();
    for _ in 0..6 {
        let answers = window(&impatient, &queue, (20, &slow)).await;
        assert!(answers.iter().all(|(is_slow, answer, _)| *is_slow || *answer == Answer::ACKED), "{answers:?}");
        worst.extend(answers.iter().filter(|(is_slow, ..)| !is_slow).map(|(_, _, after)| *after).max());
    }
    assert!(worst[0] >= Duration::from_millis(100), "it shares a channel at first: {worst:?}");
    assert!(worst.iter().any(|after| *after < Duration::from_millis(90)), "{worst:?}");

    // It is answered as soon as its queue goes on, although whoever sent it has gone.
    let publisher = publisher.deadline(Duration::from_secs(30));
    let goes_on = async {
        sleep(Duration::from_millis(500)).await;
        tell_queue(&stuck, "resume").await;
    };
    let late = event(&stuck.name);
    let (answers, ()) = tokio::join!(window(&publisher, &queue, (20, &late)), goes_on);
    assert!(answers.iter().all(|(_, answer, _)| *answer == Answer::ACKED), "{answers:?}");
    assert_eq!(stuck.messages().await, 2 + 6 + 1);
    assert_eq!(queue.messages().await as usize, WARM + 39 * (2 + 6 + 1));
    assert_eq!(publisher.publish(slow).await, Answer::ACKED);
}

// Case B61: its size may be what a channel is closed for, so it is on one of its own.
#[tokio::test]
async fn an_event_that_is_too_large_is_told_at_once_and_its_neighbours_are_acked() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let publisher = publisher();
    warmed_up(&publisher, &queue).await;
    let large = pending(order(&queue.name).bytes(vec![b'x'; 5 << 20]), 0);
    for (is_large, answer, _) in window(&publisher, &queue, (20, &large)).await {
        assert_eq!(answer, if is_large { Answer::never(Reason::Rejected) } else { Answer::ACKED });
    }
}

// M34: futures may be dropped, and whose was is nobody else's matter.
#[tokio::test]
async fn whoever_sends_a_batch_may_go_before_it_is_confirmed() {
    let _calm = Broker::RabbitMq.calm().await;
    let queue = Queue::declared(&[]).await;
    let gate = Gate::before(&Broker::RabbitMq.address()).await;
    let publisher = through(&gate).deadline(Duration::from_secs(5));
    warmed_up(&publisher, &queue).await;
    gate.set(Flow::NoAnswers);
    let patient = |from: u64, to: u64| join_all((from..to).map(|n| publisher.publish(numbered(&queue.name, n))));
    let impatient = |n: u64| timeout(Duration::from_millis(300 * n), publisher.publish(numbered(&queue.name, n)));
    let opens = async {
        sleep(Duration::from_millis(1_200)).await;
        gate.set(Flow::Open);
    };
    // The first one of a batch sends it, and hears for the others until it goes. The second one then hears for them, and so on.
    let (first, one, two, three, others, ()) =
        tokio::join!(patient(10, 18), impatient(1), impatient(2), impatient(3), patient(20, 50), opens);
    assert!(one.is_err() && two.is_err() && three.is_err());
    assert!(first.iter().chain(&others).all(|answer| *answer == Answer::ACKED), "{first:?} {others:?}");
    assert_eq!((queue.messages().await as usize, gate.connections()), (WARM + 8 + 3 + 30, 1));
}
