//! Consume, process, produce (M11), and what an outbox has sent as its consumers read it.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idempotency::inbox::source::{IdSource, Incoming};
use idempotency::inbox::{Message, MessageId, ProcessError, Processed};
use idempotency::outbox::publish::{Answer, NatsPublisher, Publisher, RabbitMqPublisher, RedisStreamsPublisher};
use idempotency::outbox::{Bucket, Event, Outbox, PendingEvent, Place};
use idempotency::store::RedisStore;
use idempotency::testing::outbox::{drain, refute_enqueued};
use idempotency::{InTransaction, OutboxDialect};
use sqlx::{MySql, Postgres, Sqlite};

use super::engine::{Engine, Shop};
use super::handler::{Runs, consumer};
use super::{nats, rabbitmq, redis_streams};
use crate::support::brokers::{Broker, until};

#[derive(Clone, Copy, Debug)]
enum Ends {
    Well,
    InAnError,
    InAPanic,
    Never,
}

/// Writes, enqueues what follows from it, and ends so.
async fn process<DB: Engine + OutboxDialect>(
    shop: &Shop<DB>,
    outbox: &Outbox<DB>,
    message: &Message,
    ends: Ends,
) -> Result<Processed<()>, ProcessError<&'static str>>
where
    idempotency::inbox::InboxTx<DB>: InTransaction<DB>,
{
    let outbox = outbox.clone();
    let handler = async |mut tx: idempotency::inbox::InboxTx<DB>| {
        DB::write(&mut tx, "paid").await.unwrap();
        let event = Event::new("broker", "shop", "order.paid", "/orders").key("c1").bytes("paid");
        outbox.enqueue(&mut tx, &event).await.unwrap();
        match ends {
            Ends::Well => Ok(()),
            Ends::InAnError => Err("refused"),
            Ends::InAPanic => panic!("on purpose"),
            Ends::Never => pending().await,
        }
    };
    shop.inbox.process(message, handler).await
}

async fn one_commit<DB: Engine + OutboxDialect>() {
    let shop = Shop::<DB>::new().await;
    let outbox = Outbox::new(shop.pool.clone()).await.unwrap();
    outbox.migrate().await.unwrap();
    let message = Message::new(MessageId::new("orders", "evt_1").unwrap(), "a");

    let failed = process(&shop, &outbox, &message, Ends::InAnError).await;
    assert!(matches!(failed, Err(ProcessError::Handler("refused"))), "{failed:?}");
    let panicked = {
        let (shop, outbox, message) = (shop.again().await, outbox.clone(), message.clone());
        tokio::spawn(async move { process(&shop, &outbox, &message, Ends::InAPanic).await.map(drop) })
    };
    assert!(panicked.await.unwrap_err().is_panic());
    let dropped =
        tokio::time::timeout(Duration::from_millis(300), process(&shop, &outbox, &message, Ends::Never)).await;
    assert!(dropped.is_err());
    refute_enqueued(&outbox, |_| true).await;
    assert_eq!(shop.effects().await.len(), 0);

    let mut answer = process(&shop, &outbox, &message, Ends::Well).await;
    while matches!(answer, Ok(Processed::Busy { .. })) {
        // What was dropped is rolled back beside us.
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer = process(&shop, &outbox, &message, Ends::Well).await;
    }
    assert!(matches!(answer, Ok(Processed::First(()))), "{answer:?}");
    let again = process(&shop, &outbox, &message, Ends::Well).await;
    assert!(matches!(again, Ok(Processed::Duplicate)), "{again:?}");
    assert_eq!((drain(&outbox).await.len(), shop.effects().await.len()), (1, 1));
}

// M11
#[tokio::test(flavor = "multi_thread")]
async fn mark_effect_and_event_are_one_commit_on_postgres() {
    one_commit::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_effect_and_event_are_one_commit_on_sqlite() {
    one_commit::<Sqlite>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_effect_and_event_are_one_commit_on_mariadb() {
    one_commit::<MySql>().await;
}

/// An event as a relay reads it, sent anew by an operator so many times.
fn read_by_relay(event: Event, redrives: u32) -> Arc<PendingEvent> {
    let id = event.id_ref().copied().unwrap_or_else(uuid::Uuid::now_v7);
    let bucket = Bucket::of(event.destination(), event.key_ref(), &id);
    Arc::new(PendingEvent::new(Place { bucket, seq: 1 }, id, event, SystemTime::now(), redrives))
}

async fn to_nats() -> NatsPublisher {
    let publisher = NatsPublisher::connect(&Broker::Nats.url()).await.unwrap();
    until("a connection", async || publisher.max_event_bytes().is_some()).await;
    publisher
}

// M11, M35, case B39, case B40: the broker has forgotten the event, or an operator has sent it anew. The inbox has not
// forgotten it.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_published_twice_is_consumed_once() {
    let _calm = Broker::Nats.calm().await;
    let (queue, shop, runs) = (nats::Queue::new().await, Shop::<Postgres>::new().await, Runs::default());
    let sent = read_by_relay(Event::new("broker", &queue.name, "order.paid", "/orders").bytes("paid"), 0);
    let redriven = read_by_relay(sent.event().clone().id(sent.id()), 1);
    let publisher = to_nats().await;
    assert_eq!(publisher.publish(sent.clone()).await, Answer::ACKED);
    assert_eq!(publisher.publish(redriven).await, Answer::ACKED, "another id for the broker alone");
    let durable = queue.durable(Duration::from_secs(30)).await;
    let service = consumer(&shop.inbox, IdSource::cloud_events(), &runs);
    for expected in ["Ok(First(()))", "Ok(Duplicate)"] {
        let message = nats::next(&durable).await;
        let answer = service.deliver(message.clone()).await;
        assert_eq!(format!("{answer:?}"), expected);
        nats::settle(&queue, &message, &answer).await.unwrap();
    }
    assert_eq!((runs.started(), shop.effects().await), (1, vec!["paid".to_owned()]));
}

// M9: what the publishers write is what the readers read, whatever brought it.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_one_identity_by_every_broker() {
    let (_nats, _rabbitmq, _redis) =
        (Broker::Nats.calm().await, Broker::RabbitMq.calm().await, Broker::Redis.calm().await);
    let (nats, rabbitmq, mut redis) =
        (nats::Queue::new().await, rabbitmq::Queue::quorum().await, redis_streams::Queue::new().await);
    let source = "/shop/caf\u{e9} 100%25";
    let event = |topic: &str| Event::new("broker", topic, "order.paid", source).bytes("paid");
    let first = read_by_relay(event(&nats.name), 0);
    let same = |topic: &str| read_by_relay(event(topic).id(first.id()), 0);
    assert_eq!(to_nats().await.publish(first.clone()).await, Answer::ACKED);
    let to_rabbitmq = RabbitMqPublisher::new(&Broker::RabbitMq.url()).unwrap();
    assert_eq!(to_rabbitmq.publish(same(&rabbitmq.name)).await, Answer::ACKED);
    let to_redis = RedisStreamsPublisher::new(RedisStore::single(Broker::Redis.url())).unwrap();
    assert_eq!(to_redis.publish(same(&redis.name)).await, Answer::ACKED);

    let expected = (MessageId::new(source, first.id().to_string()).unwrap(), b"paid".to_vec());
    let read = |message: &dyn Incoming| (IdSource::cloud_events().read(message).unwrap(), message.payload().to_vec());
    let durable = nats.durable(Duration::from_secs(30)).await;
    assert_eq!(read(&nats::next(&durable).await), expected);
    assert_eq!(read(&*rabbitmq.next().await), expected);
    assert_eq!(read(&redis.read().await.unwrap()), expected);
}
