//! What operators do while relays work (M35, M40).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::Broker;
use super::faults::picky;
use super::support::{BROKER, Running, delivery, done, enqueue, event, relay, until, until_empty};
use crate::outbox::publish::{Answer, Reason};
use crate::outbox::relay::OnExhausted;
use crate::testing::outbox::Harness;

/// M35
pub async fn a_blocked_event_is_redriven_or_discarded<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let (picky, refuses) = picky(&broker, "bad", Answer::never(Reason::TooLarge));
    let running = Running::start(relay(harness, picky, delivery()).await);
    for key in ["redriven", "discarded"] {
        enqueue(harness, &outbox, &[event("bad").key(key), event("next").key(key)]).await;
    }
    until("both are blocked", async || done(outbox.stats()).await.blocked == 2).await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(broker.events(), 0);
    refuses.store(false, Ordering::SeqCst);
    for blocked in done(outbox.failing(10)).await {
        let id = blocked.pending.id();
        let redriven = blocked.pending.event().key_ref() == Some("redriven");
        assert!(if redriven { done(outbox.redrive(id)).await } else { done(outbox.discard(id)).await });
    }
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, counts.blocked), (3, 2));
    let first = broker.first_copies();
    assert_eq!(first[&Some("redriven".to_owned())], ["bad", "next"]);
    assert_eq!(first[&Some("discarded".to_owned())], ["next"]);
}

/// M35
pub async fn a_skipped_event_is_a_dead_letter_and_its_key_goes_on<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let (picky, refuses) = picky(&broker, "bad", Answer::refused(Reason::Rejected));
    let skipping = delivery().attempts(3).on_exhausted(OnExhausted::Skip);
    let running = Running::start(relay(harness, picky, skipping).await);
    enqueue(harness, &outbox, &[event("1").key("k"), event("bad").key("k"), event("2").key("k")]).await;
    until_empty(&outbox).await;
    assert_eq!(broker.first_copies()[&Some("k".to_owned())], ["1", "2"]);
    refuses.store(false, Ordering::SeqCst);
    assert_eq!(done(outbox.redrive_dead(&crate::outbox::DeadLetters::all(), 10)).await, 1);
    until("it is out after all", async || broker.events() == 3).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, counts.failed, counts.dead), (3, 3, 1));
}

/// M40
pub async fn what_is_paused_waits<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    done(outbox.pause_key(BROKER, "paused")).await;
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    // What is paused is asked for about once a second.
    sleep(Duration::from_millis(1_500)).await;
    enqueue(harness, &outbox, &[event("1").key("paused"), event("1").key("free"), event("2").key("paused")]).await;
    until("the free one is out", async || broker.events() == 1).await;
    done(outbox.pause(BROKER)).await;
    done(outbox.resume_key(BROKER, "paused")).await;
    sleep(Duration::from_millis(1_500)).await;
    enqueue(harness, &outbox, &[event("2").key("free")]).await;
    running.stop().await;
    let before = broker.events();
    // Also by a relay that starts now.
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(broker.events(), before);
    done(outbox.resume(BROKER)).await;
    until_empty(&outbox).await;
    running.stop().await;
    let first = broker.first_copies();
    assert_eq!(first[&Some("paused".to_owned())], ["1", "2"]);
    assert_eq!(first[&Some("free".to_owned())], ["1", "2"]);
}
