//! Redis Streams, by a real server.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use idempotency::outbox::publish::{Answer, Publisher, Reason, RedisStreamsPublisher};
use idempotency::store::RedisStore;
use redis::aio::MultiplexedConnection;

use super::events::{event, order, pending, topic};
use crate::support::brokers::{Broker, Flow, Gate, until};

const SOON: Duration = Duration::from_millis(500);

async fn admin() -> MultiplexedConnection {
    redis::Client::open(Broker::Redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// The fields of each entry.
async fn entries(stream: &str) -> Vec<HashMap<String, String>> {
    let entries: Vec<(String, HashMap<String, String>)> = range(stream).await;
    entries.into_iter().map(|(_, fields)| fields).collect()
}

async fn range<T: redis::FromRedisValue>(stream: &str) -> T {
    redis::cmd("XRANGE").arg(stream).arg("-").arg("+").query_async(&mut admin().await).await.unwrap()
}

fn at(url: &str) -> RedisStreamsPublisher {
    RedisStreamsPublisher::new(RedisStore::single(url).connect_timeout(SOON).response_timeout(SOON)).unwrap()
}

fn publisher() -> RedisStreamsPublisher {
    at(&Broker::Redis.url())
}

// M21, M34
#[tokio::test]
async fn an_acked_event_is_an_entry_and_a_cloud_event() {
    let _calm = Broker::Redis.calm().await;
    let stream = topic();
    let event = pending(order(&stream).key("caf\u{e9} 1").header("tenant", "t1").header("data", "forged"), 0);
    assert_eq!(publisher().publish(event.clone()).await, Answer::ACKED);
    // case B40: the id field is the event's; a repetition is another entry with the same one.
    assert_eq!(publisher().publish(event.clone()).await, Answer::ACKED);
    let entries = entries(&stream).await;
    assert_eq!(entries.len(), 2);
    for entry in entries {
        let field = |name: &str| entry.get(name).cloned().unwrap_or_default();
        assert_eq!(field("ce-id"), event.id().to_string());
        assert_eq!((field("ce-subject"), field("ce-type")), ("caf\u{e9} 1".to_owned(), "order.placed".to_owned()));
        assert_eq!((field("content-type"), field("tenant")), ("application/json".to_owned(), "t1".to_owned()));
        assert_eq!(field("data").as_bytes(), event.event().payload_ref());
    }
    assert_eq!(publisher().publish(pending(order(""), 0)).await, Answer::never(Reason::Malformed));
}

// case B58: nothing is cut unless asked for.
#[tokio::test]
async fn a_stream_is_cut_only_where_that_is_said() {
    let _calm = Broker::Redis.calm().await;
    let (all, last, young) = (topic(), topic(), topic());
    let publisher = publisher();
    let few = publisher.clone().keep_last(10);
    join_all((0..500).map(|_| publisher.publish(event(&all)))).await;
    join_all((0..500).map(|_| few.publish(event(&last)))).await;
    assert_eq!(entries(&all).await.len(), 500);
    // About: whole nodes of 100 entries are cut.
    assert!((10..=200).contains(&entries(&last).await.len()));
    join_all((0..300).map(|_| publisher.publish(event(&young)))).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(publisher.clone().keep_for(Duration::from_secs(3600)).publish(event(&young)).await, Answer::ACKED);
    assert_eq!(entries(&young).await.len(), 301);
    assert_eq!(publisher.keep_for(Duration::from_millis(1)).publish(event(&young)).await, Answer::ACKED);
    assert!((1..=150).contains(&entries(&young).await.len()));
}

// M34
#[tokio::test]
async fn what_the_server_refuses_is_told_by_its_code() {
    let _calm = Broker::Redis.calm().await;
    let text = topic();
    redis::cmd("SET").arg(&text).arg("x").exec_async(&mut admin().await).await.unwrap();
    assert_eq!(publisher().publish(event(&text)).await, Answer::refused(Reason::Rejected));
    let user = topic();
    redis::cmd("ACL")
        .arg(&["SETUSER", &user, "on", ">pw", "~mine*", "+@all"])
        .exec_async(&mut admin().await)
        .await
        .unwrap();
    let denied = at(&format!("redis://{user}:pw@{}/0", Broker::Redis.address()));
    assert_eq!(denied.publish(event(&topic())).await, Answer::refused(Reason::Denied));
    assert_eq!(denied.publish(event(&format!("mine{user}"))).await, Answer::ACKED);
    let nobody = at(&format!("redis://{user}:wrong@{}/0", Broker::Redis.address()));
    assert_eq!(nobody.publish(event(&text)).await, Answer::UNAVAILABLE);
    redis::cmd("ACL").arg(&["DELUSER", &user]).exec_async(&mut admin().await).await.unwrap();
}

// M34: connection lost after the write is unknown, and the same id goes again.
#[tokio::test]
async fn an_answer_that_is_lost_is_unknown_and_no_connection_is_unavailable() {
    let _calm = Broker::Redis.calm().await;
    let stream = topic();
    let gate = Gate::before(&Broker::Redis.address()).await;
    let publisher = at(&format!("redis://127.0.0.1:{}/0", gate.port()));
    assert_eq!(publisher.publish(event(&stream)).await, Answer::ACKED);
    gate.set(Flow::NoAnswers);
    let lost = event(&stream);
    let losing = publisher.publish(lost.clone());
    let cutting = async {
        until("the entry in the stream", async || entries(&stream).await.len() == 2).await;
        gate.set(Flow::Cut);
    };
    let (answer, ()) = tokio::join!(losing, cutting);
    assert_eq!(answer, Answer::Unknown, "sent once, not repeated by the client");
    assert_eq!(publisher.publish(event(&stream)).await, Answer::UNAVAILABLE);
    gate.set(Flow::Open);
    assert_eq!(publisher.publish(lost.clone()).await, Answer::ACKED);
    let ids: Vec<String> = entries(&stream).await.iter().map(|entry| entry["ce-id"].clone()).collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[1..], [lost.id().to_string(), lost.id().to_string()]);
}

// M34, M40
#[tokio::test]
async fn a_paused_server_is_unknown_and_a_killed_one_unavailable_and_both_come_back() {
    let server = Broker::Redis.alone().await;
    let (stream, publisher) = (topic(), publisher());
    assert_eq!(publisher.publish(event(&stream)).await, Answer::ACKED);
    server.does("pause").await;
    assert_eq!(publisher.publish(event(&stream)).await, Answer::Unknown);
    server.does("resume").await;
    until("an ack", async || publisher.publish(event(&stream)).await == Answer::ACKED).await;
    server.does("kill").await;
    until("the connection to be lost", async || publisher.publish(event(&stream)).await == Answer::UNAVAILABLE).await;
    server.does("start").await;
    until("the way back", async || publisher.publish(event(&stream)).await == Answer::ACKED).await;
}

#[tokio::test]
async fn sentinel_and_cluster_are_published_to_as_well() {
    let cluster: Vec<String> = std::env::var("REDIS_CLUSTER_URL").unwrap().split(',').map(str::to_owned).collect();
    let sentinel = std::env::var("REDIS_SENTINEL_URL").unwrap();
    let cluster = RedisStreamsPublisher::new(RedisStore::cluster(cluster)).unwrap();
    let answers = join_all((0..20).map(|_| cluster.publish(event(&topic())))).await;
    assert!(answers.iter().all(|answer| *answer == Answer::ACKED), "{answers:?}");
    let settings = RedisStore::sentinel([sentinel], "main").wait_replicas(1, Duration::from_millis(500));
    let replicated = RedisStreamsPublisher::new(settings).unwrap();
    assert_eq!(replicated.publish(event(&topic())).await, Answer::ACKED);
    // There is one replica: the entry is there, and not as safe as was asked for.
    let settings = RedisStore::single(Broker::Redis.url()).wait_replicas(1, Duration::from_millis(50));
    let _calm = Broker::Redis.calm().await;
    assert_eq!(RedisStreamsPublisher::new(settings).unwrap().publish(event(&topic())).await, Answer::Unknown);
}
