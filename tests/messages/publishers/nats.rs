//! NATS JetStream, by a real server.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_nats::jetstream::{self, Context};
use idempotency::outbox::publish::{Answer, NatsPublisher, Publisher, Reason};

use super::events::{event, order, pending, redriven, topic};
use crate::support::brokers::{Broker, Flow, Gate, until};

const SOON: Duration = Duration::from_millis(500);

/// A publisher whose connection is up, the server's JetStream, and a stream of this name for the subject `{name}.>`.
async fn stream(config: Config) -> (NatsPublisher, Context, String) {
    let name = topic();
    let jetstream = jetstream::new(async_nats::connect(Broker::Nats.url()).await.unwrap());
    let subjects = vec![format!("{name}.>")];
    jetstream.create_stream(Config { name: name.clone(), subjects, ..config }).await.unwrap();
    (connected(&Broker::Nats.url()).await, jetstream, name)
}

async fn connected(url: &str) -> NatsPublisher {
    let publisher = NatsPublisher::connect(url).await.unwrap();
    until("a connection", async || publisher.max_event_bytes().is_some()).await;
    publisher
}

async fn messages(jetstream: &Context, stream: &str) -> u64 {
    jetstream.get_stream(stream).await.unwrap().cached_info().state.messages
}

// M21, M34
#[tokio::test]
async fn an_acked_event_is_in_the_stream_as_a_cloud_event() {
    let _calm = Broker::Nats.calm().await;
    let (publisher, jetstream, name) = stream(Config::default()).await;
    let event = pending(order(&format!("{name}.placed")).header("tenant", "t1").header("Nats-Rollup", "all"), 0);
    assert_eq!(publisher.publish(event.clone()).await, Answer::ACKED);
    let stream = jetstream.get_stream(&name).await.unwrap();
    let message = stream.get_raw_message(1).await.unwrap();
    let header = |name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(message.payload, event.event().payload_ref());
    assert_eq!(message.subject.as_str(), format!("{name}.placed"));
    assert_eq!(header("ce-id"), Some(event.id().to_string()));
    assert_eq!(header("Nats-Msg-Id"), Some(event.id().to_string()));
    assert_eq!(header("ce-subject").as_deref(), Some("c1"));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!((header("tenant").as_deref(), header("Nats-Rollup")), (Some("t1"), None));
}

// case B39: what is unknown is sent again by the same id; a redrive must arrive.
#[tokio::test]
async fn a_duplicate_is_delivered_and_a_redrive_arrives() {
    let _calm = Broker::Nats.calm().await;
    let (publisher, jetstream, name) = stream(Config::default()).await;
    let first = event(&format!("{name}.a"));
    assert_eq!(publisher.publish(first.clone()).await, Answer::ACKED);
    assert_eq!(publisher.publish(first.clone()).await, Answer::Acked { duplicate: true });
    assert_eq!(messages(&jetstream, &name).await, 1);
    assert_eq!(publisher.publish(redriven(&first, 1)).await, Answer::ACKED);
    assert_eq!(publisher.publish(redriven(&first, 1)).await, Answer::Acked { duplicate: true });
    assert_eq!(messages(&jetstream, &name).await, 2);
}

// case B40: outside of its window a stream keeps what it had.
#[tokio::test]
async fn beyond_the_window_the_stream_remembers_nothing() {
    let _calm = Broker::Nats.calm().await;
    let window = Config { duplicate_window: Duration::from_millis(100), ..Config::default() };
    let (publisher, jetstream, name) = stream(window).await;
    let first = event(&format!("{name}.a"));
    assert_eq!(publisher.publish(first.clone()).await, Answer::ACKED);
    until("the window's end", async || publisher.publish(first.clone()).await == Answer::ACKED).await;
    assert!(messages(&jetstream, &name).await >= 2);
}

// case B20
#[tokio::test]
async fn a_subject_without_a_stream_is_refused() {
    let _calm = Broker::Nats.calm().await;
    let (publisher, _, name) = stream(Config::default()).await;
    assert_eq!(publisher.publish(event(&topic())).await, Answer::refused(Reason::Unroutable));
    let other = publisher.clone().expect_stream("another");
    assert_eq!(other.publish(event(&format!("{name}.a"))).await, Answer::refused(Reason::Missing));
    assert_eq!(publisher.expect_stream(&name).publish(event(&format!("{name}.a"))).await, Answer::ACKED);
}

#[tokio::test]
async fn what_nats_cannot_express_is_refused_for_good() {
    let _calm = Broker::Nats.calm().await;
    let (publisher, _, name) = stream(Config::default()).await;
    for subject in ["", "a b", "a.>", "a\r\nPUB b 0\r\n"] {
        assert_eq!(publisher.publish(event(subject)).await, Answer::never(Reason::Malformed), "{subject:?}");
    }
    let forged = pending(order(&format!("{name}.a")).header("a", "b\r\nc: d"), 0);
    assert_eq!(publisher.publish(forged).await, Answer::never(Reason::Malformed));
}

// case B61: 2 MB on a server of 1 MB, and a stream that takes less than its server.
#[tokio::test]
async fn too_large_is_refused_for_good_and_the_connection_stays() {
    let _calm = Broker::Nats.calm().await;
    let (publisher, _, name) = stream(Config { max_message_size: 10_000, ..Config::default() }).await;
    let sized = |bytes: usize| pending(order(&format!("{name}.a")).bytes(vec![b'x'; bytes]), 0);
    assert_eq!(publisher.publish(sized(2 << 20)).await, Answer::never(Reason::TooLarge));
    assert_eq!(publisher.publish(sized(20_000)).await, Answer::never(Reason::TooLarge));
    assert_eq!(publisher.publish(sized(100)).await, Answer::ACKED);

    let (publisher, _, name) = stream(Config::default()).await;
    let largest = publisher.max_event_bytes().unwrap();
    let fitting = order(&format!("{name}.a")).key("\u{e9}".repeat(127)).bytes(vec![b'x'; largest - 400]);
    assert!(fitting.size() <= largest && fitting.size() > largest - 400);
    assert_eq!(publisher.publish(pending(fitting, 0)).await, Answer::ACKED);
}

// M34: a full stream takes nothing at the moment, whichever event it is.
#[tokio::test]
async fn a_full_stream_is_unavailable() {
    let _calm = Broker::Nats.calm().await;
    let full = Config { max_messages: 1, discard: DiscardPolicy::New, ..Config::default() };
    let (publisher, jetstream, name) = stream(full).await;
    assert_eq!(publisher.publish(event(&format!("{name}.a"))).await, Answer::ACKED);
    assert_eq!(publisher.publish(event(&format!("{name}.a"))).await, Answer::UNAVAILABLE);
    jetstream.get_stream(&name).await.unwrap().purge().await.unwrap();
    assert_eq!(publisher.publish(event(&format!("{name}.a"))).await, Answer::ACKED);
}

// case B42: many under way, all acks awaited.
#[tokio::test]
async fn a_window_of_events_is_acked_one_by_one() {
    let _calm = Broker::Nats.calm().await;
    let (publisher, jetstream, name) = stream(Config::default()).await;
    let subject = format!("{name}.a");
    let answers = futures_util::future::join_all((0..1_000).map(|_| publisher.publish(event(&subject)))).await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED));
    assert_eq!(messages(&jetstream, &name).await, 1_000);
}

// M34: sent and not answered is unknown; what was not sent is not.
#[tokio::test]
async fn an_answer_that_is_lost_is_unknown_and_a_lost_connection_is_unavailable() {
    let _calm = Broker::Nats.calm().await;
    let (_, jetstream, name) = stream(Config::default()).await;
    let gate = Gate::before(&Broker::Nats.address()).await;
    let publisher = connected(&format!("nats://127.0.0.1:{}", gate.port())).await.deadline(SOON);
    let lost = event(&format!("{name}.a"));
    gate.set(Flow::NoAnswers);
    assert_eq!(publisher.publish(lost.clone()).await, Answer::Unknown);
    until("the event in the stream", async || messages(&jetstream, &name).await == 1).await;
    gate.set(Flow::Cut);
    until("the connection to be lost", async || publisher.max_event_bytes().is_none()).await;
    let started = Instant::now();
    assert_eq!(publisher.publish(event(&format!("{name}.a"))).await, Answer::UNAVAILABLE);
    assert!(started.elapsed() < SOON, "nothing is waited for");
    gate.set(Flow::Open);
    until("the way back", async || publisher.max_event_bytes().is_some()).await;
    assert_eq!(publisher.publish(lost).await, Answer::Acked { duplicate: true });
    assert_eq!(messages(&jetstream, &name).await, 1, "nothing was kept and sent later");
}

// M34, M40
#[tokio::test]
async fn a_paused_server_is_unknown_and_a_killed_one_unavailable_and_both_come_back() {
    let server = Broker::Nats.alone().await;
    let (publisher, jetstream, name) = stream(Config::default()).await;
    let publisher = publisher.deadline(SOON);
    let subject = format!("{name}.a");
    assert_eq!(publisher.publish(event(&subject)).await, Answer::ACKED);
    server.does("pause").await;
    let stalled = event(&subject);
    assert_eq!(publisher.publish(stalled.clone()).await, Answer::Unknown);
    server.does("resume").await;
    assert!(publisher.publish(stalled).await.is_acked());
    server.does("kill").await;
    until("the connection to be lost", async || publisher.max_event_bytes().is_none()).await;
    assert_eq!(publisher.publish(event(&subject)).await, Answer::UNAVAILABLE);
    server.does("start").await;
    until("the way back", async || publisher.publish(event(&subject)).await == Answer::ACKED).await;
    // What was acked has outlived the server.
    assert_eq!(messages(&jetstream, &name).await, 3);
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let _calm = Broker::Nats.calm().await;
    let (_, _, name) = stream(Config::default()).await;
    let gate = Gate::before(&Broker::Nats.address()).await;
    gate.set(Flow::Cut);
    let publisher = NatsPublisher::connect(&format!("nats://127.0.0.1:{}", gate.port())).await.unwrap();
    assert_eq!(publisher.publish(event(&format!("{name}.a"))).await, Answer::UNAVAILABLE);
    gate.set(Flow::Open);
    until("a connection", async || publisher.publish(event(&format!("{name}.a"))).await == Answer::ACKED).await;
    assert!(NatsPublisher::connect("nats://a b:x").await.is_err());
}
