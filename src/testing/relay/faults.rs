//! Events and destinations that fail (M34, M35).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;

use super::Broker;
use super::support::{BROKER, Running, delivery, done, enqueue, enqueue_all, event, relay, until, until_empty};
use crate::outbox::Event;
use crate::outbox::publish::{Answer, Reason};
use crate::outbox::relay::{OnUnknown, Relay};
use crate::store::BodyCodec;
use crate::testing::outbox::Harness;

/// A broker that refuses events with this text as long as it is told to.
pub(super) fn picky(broker: &Broker, text: &'static str, answer: Answer) -> (Broker, Arc<AtomicBool>) {
    let refuses = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&refuses);
    let picky = broker.judged(move |event| {
        let refuse = switch.load(Ordering::SeqCst) && event.event().payload_ref() == text.as_bytes();
        async move { refuse.then_some(answer) }
    });
    (picky, refuses)
}

/// M36, case B56
pub async fn a_failed_event_holds_its_key_up_and_nobody_else<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let (picky, refuses) = picky(&broker, "bad", Answer::refused(Reason::Rejected));
    let running = Running::start(relay(harness, picky, delivery().attempts(1_000)).await);
    enqueue(harness, &outbox, &[event("bad").key("k")]).await;
    let events: Vec<Event> =
        (0..200).map(|n| event(&n.to_string()).key(if n % 2 == 0 { "k" } else { "other" })).collect();
    enqueue_all(harness, &outbox, &events).await;
    until("the other key is out", async || broker.events() == 100).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(broker.events(), 100);
    refuses.store(false, Ordering::SeqCst);
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert!(counts.failed > 0);
    let mut expected: Vec<String> = (0..200).filter(|n| n % 2 == 0).map(|n| n.to_string()).collect();
    expected.insert(0, "bad".to_owned());
    assert_eq!(broker.first_copies()[&Some("k".to_owned())], expected);
    assert_eq!(broker.duplicates(), 0);
}

/// Case B37: two batches of poison come first.
pub async fn poison_at_the_head_lets_the_others_pass<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let (picky, _) = picky(&broker, "bad", Answer::refused(Reason::Rejected));
    enqueue_all(harness, &outbox, &(0..512).map(|_| event("bad")).collect::<Vec<_>>()).await;
    enqueue_all(harness, &outbox, &(0..100).map(|n| event(&n.to_string())).collect::<Vec<_>>()).await;
    let waits = delivery().attempts(3).retry_after(Duration::from_millis(200), Duration::from_secs(1));
    let running = Running::start(relay(harness, picky, waits).await);
    until("the good ones are out", async || broker.events() == 100).await;
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, counts.dead, done(outbox.stats()).await.dead), (100, 512, 512));
}

/// M34, case B38: ten times the longest wait.
pub async fn an_outage_uses_no_attempt_up<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let back = Instant::now() + Duration::from_millis(1_500);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let away = broker.judged(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { (Instant::now() < back).then_some(Answer::UNAVAILABLE) }
    });
    let events: Vec<Event> = (0..300).map(|n| event(&n.to_string()).key(format!("k{}", n % 30))).collect();
    enqueue_all(harness, &outbox, &events).await;
    let running = Running::start(relay(harness, away, delivery().attempts(1)).await);
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, counts.failed, counts.dead, counts.blocked), (300, 0, 0, 0));
    assert_eq!(done(outbox.stats()).await.dead, 0);
    // The first window, one at a time afterwards, and everything once.
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked < 300 + 256 + 1_500, "{asked}");
    assert_eq!(broker.duplicates(), 0);
}

/// M34, case B65
pub async fn what_is_unknown_is_parked_where_that_was_asked_for<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let (picky, knows) = picky(&broker, "lost", Answer::Unknown);
    let running = Running::start(relay(harness, picky, delivery().on_unknown(OnUnknown::Park)).await);
    enqueue(harness, &outbox, &[event("lost").key("k"), event("next").key("k"), event("alone")]).await;
    until("the rest is out", async || broker.events() == 1).await;
    until("it is parked", async || done(outbox.stats()).await.blocked == 1).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(broker.events(), 1);
    knows.store(false, Ordering::SeqCst);
    let parked = done(outbox.failing(10)).await;
    assert!(done(outbox.redrive(parked[0].pending.id())).await);
    until_empty(&outbox).await;
    running.stop().await;
    assert_eq!(broker.first_copies()[&Some("k".to_owned())], ["lost", "next"]);
}

/// Case B32
pub async fn a_panicking_publisher_kills_no_relay<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let panics = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&panics);
    let shaky = broker.judged(move |event| {
        let bad = event.event().payload_ref() == &b"bad"[..] && count.fetch_add(1, Ordering::SeqCst) < 2;
        async move {
            assert!(!bad, "as the test wants it");
            None
        }
    });
    let running = Running::start(relay(harness, shaky, delivery()).await);
    enqueue(harness, &outbox, &[event("bad").key("k"), event("next").key("k"), event("other")]).await;
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, panics.load(Ordering::SeqCst)), (3, 3));
    assert_eq!(broker.duplicates(), 0);
}

/// Panics over the payload `bad` at first, then refuses it, and reads it the third time.
struct Shaky(AtomicU32);

impl BodyCodec for Shaky {
    fn encode(&self, body: Bytes) -> Bytes {
        body
    }

    fn decode(&self, stored: Bytes) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        let bad = stored == b"bad"[..];
        match self.0.fetch_add(u32::from(bad), Ordering::SeqCst) {
            0 if bad => panic!("as the test wants it"),
            1 if bad => Err("as the test wants it".into()),
            _ => Ok(stored),
        }
    }
}

/// M21, case B32: what a codec cannot read is tried again, and holds up its key alone.
pub async fn a_panicking_codec_kills_no_relay<H: Harness>(harness: &H) {
    let broker = Broker::new();
    let outbox = harness.build(harness.builder().codec(Shaky(AtomicU32::new(0)))).await;
    let relay = Relay::new(outbox.clone()).publisher_with(BROKER, broker.clone(), delivery());
    let running = Running::start(relay);
    enqueue(harness, &outbox, &[event("bad").key("k"), event("next").key("k"), event("other")]).await;
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, counts.failed), (3, 2));
    assert_eq!(broker.first_copies()[&Some("k".to_owned())], ["bad", "next"]);
}
