//! Relays that end: in order, or not (M33, M34, M40).

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Broker;
use super::support::{BROKER, Running, delivery, done, enqueue, enqueue_all, event, relay, until, until_empty};
use crate::error::ErrorKind;
use crate::outbox::Event;
use crate::outbox::relay::Relay;
use crate::testing::outbox::Harness;

/// Case B63: fifty events are out at a fast broker.
pub async fn a_stop_waits_for_what_is_out<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let out = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&out);
    let fast = broker.judged(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async {
            sleep(Duration::from_millis(100)).await;
            None
        }
    });
    enqueue_all(harness, &outbox, &(0..1_000).map(|n| event(&n.to_string())).collect::<Vec<_>>()).await;
    let running = Running::start(relay(harness, fast, delivery()).await.window(50, 1 << 20));
    until("fifty are out", async || out.load(Ordering::SeqCst) >= 50).await;
    let counts = running.stop().await;
    assert!(counts.published >= 50);
    assert_eq!(counts.left, 0);
    // Its buckets are free at once: no lease is waited for.
    let since = Instant::now();
    let running = Running::start(relay(harness, broker.clone(), delivery()).await.lease(Duration::from_secs(60)));
    until_empty(&outbox).await;
    assert!(since.elapsed() < Duration::from_secs(30));
    let rest = running.stop().await;
    assert_eq!(counts.published + rest.published, 1_000);
    assert_eq!((broker.events(), broker.duplicates()), (1_000, 0));
}

/// M40
pub async fn a_stop_does_not_wait_for_ever<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let hangs = broker.judged(|_| async {
        sleep(Duration::from_secs(3_600)).await;
        None
    });
    enqueue_all(harness, &outbox, &(0..10).map(|n| event(&n.to_string())).collect::<Vec<_>>()).await;
    let running = Running::start(relay(harness, hangs, delivery()).await.grace(Duration::from_millis(300)));
    sleep(Duration::from_secs(1)).await;
    let since = Instant::now();
    assert_eq!(running.stop().await.left, 10);
    assert!(since.elapsed() < Duration::from_secs(10));
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    until_empty(&outbox).await;
    running.stop().await;
}

/// M40: dropped after its n-th poll, for many n. The window bounds what comes twice.
pub async fn killed_at_any_point_nothing_is_lost<H: Harness>(harness: &H) {
    const WINDOW: usize = 8;
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let mut kills = 0;
    let mut polls = 1_usize;
    for round in 0..40 {
        let events: Vec<Event> =
            (0..20).map(|n| event(&format!("{:03}", round * 20 + n)).key(format!("k{}", n % 4))).collect();
        enqueue_all(harness, &outbox, &events).await;
        let relay = relay(harness, broker.clone(), delivery()).await.name("one").window(WINDOW, 1 << 20);
        kills += usize::from(!polled(relay, polls).await);
        polls += 1 + polls / 8;
    }
    assert!(kills > 30);
    let running = Running::start(relay(harness, broker.clone(), delivery()).await.name("one"));
    until_empty(&outbox).await;
    running.stop().await;
    assert_eq!(broker.events(), 800);
    assert!(broker.duplicates() <= WINDOW * kills, "{} of {}", broker.duplicates(), WINDOW * kills);
    for (_, texts) in broker.first_copies() {
        assert!(texts.is_sorted());
    }
}

/// Polls a relay so often, then drops it. Whether it has ended by itself.
async fn polled<DB: crate::db::OutboxDialect>(relay: Relay<DB>, polls: usize) -> bool {
    let mut left = polls;
    let mut relay = pin!(relay.run(std::future::pending()));
    let limit = Instant::now() + Duration::from_secs(2);
    std::future::poll_fn(move |context| {
        if left == 0 || Instant::now() > limit {
            return Poll::Ready(false);
        }
        left -= 1;
        relay.as_mut().poll(context).map(|_| true)
    })
    .await
}

/// Case B12: within its lease and a few polls.
pub async fn a_vanished_relay_is_followed_within_its_lease<H: Harness>(harness: &H) {
    const LEASE: Duration = Duration::from_secs(3);
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let slow = broker.judged(|_| async {
        sleep(Duration::from_millis(300)).await;
        None
    });
    let first = Running::start(relay(harness, slow, delivery()).await.lease(LEASE).name("first"));
    sleep(Duration::from_millis(500)).await;
    enqueue_all(harness, &outbox, &(0..1_000).map(|n| event(&n.to_string())).collect::<Vec<_>>()).await;
    until("the first works", async || broker.events() > 0).await;
    first.kill().await;
    let since = Instant::now();
    let second = Running::start(relay(harness, broker.clone(), delivery()).await.lease(LEASE).name("second"));
    until_empty(&outbox).await;
    // Careful rows cost a write each, and machines are busy; but no lease of another length is waited for.
    assert!(since.elapsed() < LEASE + Duration::from_secs(40), "{:?}", since.elapsed());
    second.stop().await;
    assert_eq!(broker.events(), 1_000);
    assert!(broker.duplicates() <= 256);
}

/// M34: whoever publishes it is killed; after as many attempts as are allowed it is left alone, and everything else is out.
pub async fn an_event_that_kills_its_relay_stands_still_in_the_end<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let mut events: Vec<Event> = (0..60).map(|n| event(&n.to_string()).key(format!("k{n}"))).collect();
    events.insert(30, event("killer").key("killer"));
    enqueue_all(harness, &outbox, &events).await;
    let mut deaths = 0;
    loop {
        let dying = Arc::new(AtomicBool::new(false));
        let died = Arc::clone(&dying);
        let deadly = broker.judged(move |event| {
            let kills = event.event().payload_ref() == &b"killer"[..];
            let died = Arc::clone(&died);
            async move {
                if kills {
                    died.store(true, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                None
            }
        });
        let running = Running::start(relay(harness, deadly, delivery().attempts(3)).await.name("one"));
        let over = async || done(outbox.stats()).await.blocked == 1;
        until("it dies or is done", async || dying.load(Ordering::SeqCst) || over().await).await;
        if dying.load(Ordering::SeqCst) {
            deaths += 1;
            assert!(deaths < 8, "it kills for ever");
            running.kill().await;
        } else {
            until("the others are out", async || done(outbox.stats()).await.pending == 1).await;
            running.stop().await;
            break;
        }
    }
    // The first one was not expected and is not on record.
    assert_eq!(deaths, 4);
    assert_eq!(broker.events(), 60);
}

/// M33
pub async fn a_later_process_of_the_same_name_ousts_the_earlier<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let named = async || relay(harness, broker.clone(), delivery()).await.name("one").lease(Duration::from_secs(3));
    if !H::SHARES {
        // The later one stands by, until the earlier one has ended.
        let earlier = Running::start(named().await);
        enqueue(harness, &outbox, &[event("1")]).await;
        until_empty(&outbox).await;
        let later = Running::start(named().await);
        sleep(Duration::from_secs(1)).await;
        earlier.stop().await;
        enqueue(harness, &outbox, &[event("2")]).await;
        until_empty(&outbox).await;
        later.stop().await;
        return;
    }
    let earlier = Running::start(named().await);
    enqueue(harness, &outbox, &[event("1")]).await;
    until_empty(&outbox).await;
    let later = Running::start(named().await);
    match earlier.ended().await {
        Err(error) => assert_eq!(error.kind(), ErrorKind::LeaseLost),
        Ok(counts) => panic!("it must not go on: {counts:?}"),
    }
    enqueue(harness, &outbox, &[event("2"), Event::new(BROKER, "t", "t", "/kit")]).await;
    until_empty(&outbox).await;
    assert_eq!(later.stop().await.published, 2);
}
