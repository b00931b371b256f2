//! Order by key, whoever commits when (M30, M31).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;

use super::Broker;
use super::support::{Running, delivery, done, enqueue, enqueue_all, event, relay, until, until_empty};
use crate::outbox::Event;
use crate::outbox::publish::{Answer, Reason};
use crate::testing::outbox::Harness;

type Committed = BTreeMap<Option<String>, Vec<String>>;

/// Writers of some keys, each of which takes its key's lock first, waits, enqueues, waits and commits. A third of the
/// transactions is rolled back where `holes` says so.
async fn write<H: Harness>(harness: &H, writers: usize, keys: usize, each: usize, holes: bool) -> Committed {
    let keys: Arc<Vec<Mutex<usize>>> = Arc::new((0..keys).map(|_| Mutex::new(0)).collect());
    let outbox = harness.outbox().await;
    let writers: Vec<_> = (0..writers)
        .map(|writer| {
            let (outbox, keys) = (outbox.clone(), Arc::clone(&keys));
            async move {
                for n in 0..each {
                    let chance = writer * 7_919 + n * 104_729;
                    let which = chance % keys.len();
                    let Some(key) = keys.get(which) else { return };
                    let mut number = key.lock().await;
                    let mut tx = harness.transaction().await;
                    let told = (*number + 1).to_string();
                    done(outbox.enqueue(&mut tx, &event(&told).key(format!("k{which}")))).await;
                    if H::WRITERS {
                        sleep(Duration::from_millis((chance % 31) as u64)).await;
                    }
                    if holes && chance % 3 == 0 {
                        done(tx.rollback()).await;
                    } else {
                        done(tx.commit()).await;
                        *number += 1;
                    }
                }
            }
        })
        .collect();
    join_all(writers).await;
    let mut committed = Committed::new();
    for (which, key) in keys.iter().enumerate() {
        let last = *key.lock().await;
        if last > 0 {
            committed.insert(Some(format!("k{which}")), (1..=last).map(|n| n.to_string()).collect());
        }
    }
    committed
}

/// All at once, on this task.
async fn join_all(futures: Vec<impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        let mut open = false;
        for slot in &mut futures {
            if let Some(future) = slot {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(()) => *slot = None,
                    std::task::Poll::Pending => open = true,
                }
            }
        }
        if open { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
}

/// M30, M31, case B01, case B03, case B07
pub async fn late_committers_lose_nothing_and_keep_their_order<H: Harness>(harness: &H) {
    let broker = Broker::new();
    let slow = broker.judged(|event| async move {
        sleep(Duration::from_millis(u64::from(event.id().as_bytes()[15] % 4))).await;
        None
    });
    let outbox = harness.outbox().await;
    let mut relays = Vec::new();
    for _ in 0..3 {
        relays.push(Running::start(relay(harness, slow.clone(), delivery()).await));
    }
    let committed = write(harness, if H::WRITERS { 64 } else { 8 }, 40, 25, false).await;
    until_empty(&outbox).await;
    for relay in relays {
        relay.stop().await;
    }
    assert_eq!(broker.first_copies(), committed);
    assert_eq!(broker.duplicates(), 0);
}

/// Case B06
pub async fn holes_are_no_hindrance<H: Harness>(harness: &H) {
    let broker = Broker::new();
    let outbox = harness.outbox().await;
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    let committed = write(harness, 8, 5, 25, true).await;
    until_empty(&outbox).await;
    running.stop().await;
    assert_eq!(broker.first_copies(), committed);
}

/// Case B05: what is committed goes out, whoever has an open transaction, one that has enqueued included.
pub async fn an_open_transaction_holds_up_nobody<H: Harness>(harness: &H) {
    if !H::WRITERS {
        return;
    }
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let running = Running::start(relay(harness, broker.clone(), delivery()).await);
    let mut open = harness.transaction().await;
    done(outbox.enqueue(&mut open, &event("1").key("late"))).await;
    let events: Vec<Event> = (0..300).map(|n| event(&n.to_string()).key(format!("k{}", n % 50))).collect();
    enqueue(harness, &outbox, &events).await;
    until("the others are out", async || broker.events() == 300).await;
    sleep(Duration::from_secs(2)).await;
    // Long after positions have moved past its number.
    done(open.commit()).await;
    enqueue(harness, &outbox, &[event("2").key("late")]).await;
    until("the late ones are out", async || broker.events() == 302).await;
    assert_eq!(broker.first_copies()[&Some("late".to_owned())], ["1", "2"]);
    running.stop().await;
}

/// Case B33
pub async fn five_relays_publish_each_event_once<H: Harness>(harness: &H) {
    let (outbox, broker) = (harness.outbox().await, Broker::new());
    let events: Vec<Event> = (0..2_000).map(|n| event(&n.to_string()).key(format!("k{}", n % 100))).collect();
    enqueue_all(harness, &outbox, &events).await;
    let mut relays = Vec::new();
    for _ in 0..5 {
        relays.push(Running::start(relay(harness, broker.clone(), delivery()).await));
    }
    until_empty(&outbox).await;
    let mut published = 0;
    for relay in relays {
        published += relay.stop().await.published;
    }
    assert_eq!((published, broker.events(), broker.duplicates()), (2_000, 2_000, 0));
}

/// M32: with four events of a key out, one refusal is enough.
pub async fn a_wider_window_per_key_breaks_the_order<H: Harness>(harness: &H) {
    async fn ordered<H: Harness>(harness: &H, window: usize) -> bool {
        let (outbox, broker) = (harness.outbox().await, Broker::new());
        let refused = Arc::new(Mutex::new(std::collections::HashSet::new()));
        let once = broker.judged(move |event| {
            let refused = Arc::clone(&refused);
            async move {
                let first = refused.lock().await.insert(event.id());
                let unlucky = event.event().payload_ref().ends_with(b"3");
                (first && unlucky).then_some(Answer::refused(Reason::Rejected))
            }
        });
        let events: Vec<Event> = (10..60).map(|n| event(&n.to_string()).key("k")).collect();
        enqueue_all(harness, &outbox, &events).await;
        let running = Running::start(relay(harness, once, delivery().window_per_key(window)).await);
        until_empty(&outbox).await;
        running.stop().await;
        let all: Vec<String> = (10..60).map(|n| n.to_string()).collect();
        broker.first_copies()[&Some("k".to_owned())] == all
    }
    assert!(ordered(harness, 1).await);
    assert!(!ordered(harness, 4).await);
}
