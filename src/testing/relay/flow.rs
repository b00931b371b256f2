//! Events that arrive.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use super::Broker;
use super::support::{BROKER, Running, delivery, done, enqueue, enqueue_all, event, relay, until, until_empty};
use crate::outbox::{Event, Outbox};
use crate::testing::outbox::Harness;

/// M40
pub async fn every_committed_event_is_published_and_counted<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let events: Vec<Event> = (0..100).map(|n| event(&n.to_string()).key(format!("k{}", n % 7))).collect();
    enqueue_all(harness, &outbox, &events).await;
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    until_empty(&outbox).await;
    enqueue(harness, &outbox, &[event("last")]).await;
    until_empty(&outbox).await;
    let counts = running.stop().await;
    assert_eq!((counts.published, counts.failed, counts.dead, counts.left), (101, 0, 0, 0));
    assert_eq!((broker.events(), broker.duplicates()), (101, 0));
}

/// M32: the window counts bytes, and an event that is larger than it goes alone.
pub async fn large_events_pass_one_by_one<H: Harness>(harness: &H) {
    let outbox = harness.build(Outbox::builder().max_size(2_000_000)).await;
    let out = Arc::new(std::sync::Mutex::new((0_usize, 0_usize)));
    let counted = Arc::clone(&out);
    let broker = Broker::new().judged(move |event| {
        let (out, size) = (Arc::clone(&counted), event.event().size());
        async move {
            let change = |by: isize| {
                if let Ok(mut out) = out.lock() {
                    out.0 = out.0.saturating_add_signed(by);
                    out.1 = out.1.max(out.0);
                }
            };
            change(size.cast_signed());
            sleep(Duration::from_millis(5)).await;
            change(-size.cast_signed());
            None
        }
    });
    let events: Vec<Event> = (0..30).map(|_| event("").payload("text/plain", vec![b'x'; 60_000])).collect();
    enqueue_all(harness, &outbox, &events).await;
    enqueue(harness, &outbox, &[event("").payload("text/plain", vec![b'x'; 1_500_000])]).await;
    let running = Running::start(relay(harness, broker.clone(), delivery()).await.window(256, 200_000));
    until_empty(&outbox).await;
    assert_eq!(running.stop().await.published, 31);
    let most = out.lock().map_or(0, |out| out.1);
    assert!((1_500_000..1_600_000).contains(&most), "{most}");
}

/// Case B13, case B24
pub async fn each_destination_gets_its_own<H: Harness>(harness: &H) {
    let (outbox, one, other) = (harness.outbox().await, Broker::new(), Broker::new());
    let to = |destination: &str| {
        Event::new(destination, "t", "t", "/kit").key("k").payload("text/plain", destination.to_owned())
    };
    let running = Running::start(relay(harness, one.clone(), delivery()).await.publisher("other", other.clone()));
    for _ in 0..20 {
        enqueue(harness, &outbox, &[to(BROKER), to("other"), to("nobody")]).await;
    }
    until("both are served", async || one.events() == 20 && other.events() == 20).await;
    until("what nobody serves is left", async || done(outbox.stats()).await.pending == 20).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(running.stop().await.published, 40);
    assert_eq!((one.duplicates(), other.duplicates()), (0, 0));
    assert!(one.copies().iter().all(|copy| copy.text == BROKER));
    assert!(other.copies().iter().all(|copy| copy.text == "other"));
    // Whoever knows the destination finds what was passed over.
    let nobody = Broker::new();
    let running = Running::start(relay(harness, one, delivery()).await.publisher("nobody", nobody.clone()));
    until_empty(&outbox).await;
    running.stop().await;
    assert_eq!(nobody.events(), 20);
}

/// Case B09, case B28
pub async fn a_stalled_destination_holds_up_nobody_else<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let stalled = Broker::new().judged(|_| async {
        sleep(Duration::from_secs(3_600)).await;
        None
    });
    let to = |n: i32| Event::new("stalled", "t", "t", "/kit").payload("text/plain", n.to_string());
    enqueue_all(harness, &outbox, &(0..2_000).map(to).collect::<Vec<_>>()).await;
    enqueue_all(harness, &outbox, &(0..50).map(|n| event(&n.to_string())).collect::<Vec<_>>()).await;
    let relay = relay(harness, broker.clone(), delivery()).await.publisher("stalled", stalled).window(32, 1 << 20);
    let running = Running::start(relay.grace(Duration::from_millis(100)));
    until("the others are served", async || broker.events() == 50).await;
    until("they are deleted", async || outbox.stats().await.is_ok_and(|stats| stats.pending == 2_000)).await;
    assert_eq!(running.stop().await.left, 32);
}

/// M41, case B54: nothing but polling is relied on; `wake` is never called in this kit.
pub async fn a_poke_is_not_needed<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let running =
        Running::start(relay(harness, broker.clone(), delivery()).await.poll_idle(Duration::from_secs(3_600)));
    sleep(Duration::from_secs(3)).await;
    let since = Instant::now();
    enqueue(harness, &outbox, &[event("1")]).await;
    until("it is seen", async || broker.events() == 1).await;
    // At most a second of rest, and the time of a busy machine.
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    running.stop().await;
}

/// M40
pub async fn a_deferred_event_is_published_when_it_is_due<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let due = SystemTime::now() + Duration::from_secs(2);
    enqueue(harness, &outbox, &[event("later").deliver_after(due), event("now")]).await;
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    until("the first", async || broker.events() == 1).await;
    until("the second", async || broker.events() == 2).await;
    let texts: Vec<String> = broker.copies().into_iter().map(|copy| copy.text).collect();
    assert_eq!(texts, ["now", "later"]);
    running.stop().await;
}
