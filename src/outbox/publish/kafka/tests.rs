use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaErrorCode as Code, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::*;
use crate::outbox::Event;
use crate::outbox::publish::testing::pending;

type Cluster = MockCluster<'static, DefaultProducerContext>;

const SOON: Duration = Duration::from_secs(2);

fn order(topic: &str) -> Event {
    Event::new("broker", topic, "order.placed", "/orders").payload("application/json", "{\"n\": 1}")
}

fn event(event: Event) -> Arc<PendingEvent> {
    pending(event, SystemTime::now(), 0).into()
}

fn cluster() -> Cluster {
    MockCluster::new(1).unwrap()
}

fn publisher(cluster: &Cluster) -> KafkaPublisher {
    KafkaPublisher::builder(&cluster.bootstrap_servers()).deadline(SOON).set("linger.ms", "0").build().unwrap()
}

/// The log of a topic from its start, until it has so many records.
async fn log(cluster: &Cluster, topic: &'static str, records: usize) -> Vec<OwnedMessage> {
    let servers = cluster.bootstrap_servers();
    tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", servers).set("group.id", "test").create().unwrap();
        let known = consumer.fetch_metadata(Some(topic), SOON).unwrap();
        let mut places = TopicPartitionList::new();
        for partition in known.topics()[0].partitions() {
            places.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        }
        consumer.assign(&places).unwrap();
        let mut log = Vec::new();
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            match consumer.poll(Duration::from_millis(250)) {
                Some(record) => log.push(record.unwrap().detach()),
                // One look more, for what should not be there.
                None if log.len() >= records => break,
                None => {}
            }
        }
        log
    })
    .await
    .unwrap()
}

// M21, M34
#[tokio::test]
async fn an_acked_event_is_a_record_and_a_cloud_event() {
    let cluster = cluster();
    let event = event(order("orders").key("c1").header("tenant", "t1").header("ce_id", "forged"));
    assert_eq!(publisher(&cluster).publish(event.clone()).await, Answer::ACKED);
    let log = log(&cluster, "orders", 1).await;
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].key(), log[0].payload()), (Some(&b"c1"[..]), Some(&event.event().payload_ref()[..])));
    let headers = log[0].headers().unwrap();
    let header = |name: &str| {
        let found: Vec<_> = headers.iter().filter(|header| header.key == name).collect();
        found.iter().map(|header| String::from_utf8_lossy(header.value.unwrap()).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(header("ce_id"), [event.id().to_string()]);
    assert_eq!(
        (header("ce_type"), header("content-type")),
        (vec!["order.placed".into()], vec!["application/json".into()])
    );
    assert_eq!(header("tenant"), ["t1"]);
}

// case B45: the hashes are those of Java's clients; an empty key is a key, and none is none.
#[tokio::test]
async fn a_key_has_the_partition_that_java_gives_it() {
    let vectors: [(&str, u32); 7] = [
        ("kafka", 0xd067_cf64),
        ("giberish123456789", 0x8f55_2b0c),
        ("1234", 0x9fc9_7b14),
        ("234", 0xe7c0_09ca),
        ("34", 0x8739_30da),
        ("4", 0x5a4b_5ca1),
        ("", 0x106e_08d9),
    ];
    let cluster = cluster();
    cluster.create_topic("keyed", 31, 1).unwrap();
    let publisher = publisher(&cluster);
    for (key, _) in vectors {
        assert_eq!(publisher.publish(event(order("keyed").key(key))).await, Answer::ACKED);
    }
    let log = log(&cluster, "keyed", vectors.len()).await;
    for (key, hash) in vectors {
        let record = log.iter().find(|record| record.key() == Some(key.as_bytes())).unwrap();
        assert_eq!(record.partition(), i32::try_from((hash & 0x7fff_ffff) % 31).unwrap(), "{key}");
    }
    cluster.create_topic("keyless", 31, 1).unwrap();
    let answers = join_all((0..10).map(|_| publisher.publish(event(order("keyless"))))).await;
    assert!(answers.iter().all(|answer| answer.is_acked()));
    assert!(self::log(&cluster, "keyless", 10).await.iter().all(|record| record.key().is_none()));
}

// case B44: what times out at the broker may be written, and is sent again by librdkafka itself.
#[tokio::test]
async fn an_error_that_passes_is_overcome_and_one_that_lasts_is_unknown() {
    let cluster = cluster();
    let publisher = publisher(&cluster);
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::ACKED);
    let timed_out = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT;
    cluster.request_errors(RDKafkaApiKey::Produce, &[timed_out; 2]);
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::ACKED);
    cluster.request_errors(RDKafkaApiKey::Produce, &[timed_out; 1_000]);
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::Unknown);
    cluster.clear_request_errors(RDKafkaApiKey::Produce);
    let answers = join_all((0..100).map(|_| publisher.publish(event(order("t"))))).await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED), "{answers:?}");
    // Idempotent: what librdkafka repeats by itself is there once.
    assert_eq!(log(&cluster, "t", 102).await.len(), 102);
}

// M34
#[tokio::test]
async fn what_a_broker_refuses_is_told_by_its_code() {
    let cluster = cluster();
    let publisher = publisher(&cluster);
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::ACKED);
    for (topic, error, answer) in [
        ("theirs", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Answer::refused(Reason::Denied)),
        ("small", RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, Answer::never(Reason::TooLarge)),
    ] {
        cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        assert_eq!(publisher.publish(event(order(topic))).await, answer);
    }
    // The producer has met errors of its own by then, and goes on.
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::ACKED);
    for topic in ["", "a b", "..", &"x".repeat(250)] {
        assert_eq!(publisher.publish(event(order(topic))).await, Answer::never(Reason::Malformed), "{topic}");
    }
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_refused() {
    let cluster = cluster();
    cluster.topic_error("none", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    assert_eq!(publisher(&cluster).publish(event(order("none"))).await, Answer::refused(Reason::Missing));
}

// case B61
#[tokio::test]
async fn too_large_is_refused_for_good() {
    let cluster = cluster();
    let publisher = publisher(&cluster);
    let sized = |bytes: usize| event(order("t").bytes(vec![b'x'; bytes]));
    assert_eq!(publisher.publish(sized(2 << 20)).await, Answer::never(Reason::TooLarge));
    let largest = publisher.max_event_bytes().unwrap();
    assert_eq!(publisher.publish(sized(largest - 200)).await, Answer::ACKED);
}

// M34, M40
#[tokio::test]
async fn a_broker_that_is_away_is_unknown_and_comes_back() {
    let cluster = cluster();
    let publisher = publisher(&cluster);
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::ACKED);
    cluster.broker_down(1).unwrap();
    assert_eq!(publisher.publish(event(order("t"))).await, Answer::Unknown);
    cluster.broker_up(1).unwrap();
    for attempt in 0.. {
        if publisher.publish(event(order("t"))).await == Answer::ACKED {
            break;
        }
        assert!(attempt < 10);
    }
}

#[test]
fn what_the_promises_rest_on_cannot_be_set() {
    for name in ["acks", "enable.idempotence", "partitioner", "message.timeout.ms", "request.required.acks"] {
        let built = KafkaPublisher::builder("127.0.0.1:1").set(name, "1").build();
        assert_eq!(built.unwrap_err().kind(), crate::ErrorKind::Setup, "{name}");
    }
    let unknown = KafkaPublisher::builder("127.0.0.1:1").set("no.such.setting", "secret").build().unwrap_err();
    assert!(!format!("{unknown:?}").contains("secret"));
}

// M34, case B10: by codes.
#[test]
fn in_doubt_it_is_unknown() {
    let delivered = |code| judge::delivered(&KafkaError::MessageProduction(code));
    for code in [Code::MessageTimedOut, Code::Fatal, Code::RequestTimedOut, Code::NotEnoughReplicasAfterAppend] {
        assert_eq!(delivered(code), Answer::Unknown, "{code:?}");
    }
    assert_eq!(delivered(Code::PurgeInflight), Answer::Unknown);
    assert_eq!(delivered(Code::PurgeQueue), Answer::UNAVAILABLE);
    assert_eq!(delivered(Code::InvalidTopic), Answer::never(Reason::Malformed));
    assert_eq!(judge::queued(&KafkaError::MessageProduction(Code::QueueFull)), Answer::UNAVAILABLE);
    assert_eq!(
        judge::queued(&KafkaError::MessageProduction(Code::MessageSizeTooLarge)),
        Answer::never(Reason::TooLarge)
    );
}
