//! Many deliveries at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::{CONSUMER, Harness, Work, is_busy, message};
use crate::inbox::{Message, Processed};

/// Of so many deliveries of one message, in two processes, exactly one acts.
pub async fn of_many_deliveries_one_acts<H: Harness>(harness: &H) {
    let inboxes = [harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await];
    for round in 0..5 {
        let told = message(format!("many {round}"), "payload");
        let what = format!("many {round}");
        let firsts = AtomicUsize::new(0);
        let deliveries = (0..12).map(|n| {
            let inbox = &inboxes[n % 2];
            deliver_until_done(harness, inbox, &told, Work::new(&what), &firsts)
        });
        together(deliveries).await;
        assert_eq!(firsts.load(Ordering::SeqCst), 1);
        assert_eq!(harness.effects(&what).await, 1);
    }
}

/// Neighbours are not busy for each other.
pub async fn different_messages_do_not_disturb_each_other<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let messages: Vec<Message> = (0..40).map(|n| message(format!("neighbour {n}"), "payload")).collect();
    let inbox = &inbox;
    let told = together(messages.iter().map(|message| async move {
        // A serialisation failure between handlers is nobody's fault.
        loop {
            match harness.process(inbox, message, Work::new("neighbour")).await {
                Ok(told) => return told,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }));
    assert!(told.await.iter().all(|told| *told == Processed::First(())));
    assert_eq!(harness.effects("neighbour").await, 40);
}

/// 399 messages, each delivered three times at once by two processes, and two of five first deliveries rolled back. Each
/// acts once in the end, and nobody is told *duplicate* before its effect is committed (M3).
pub async fn a_crowd_with_rollbacks_acts_once_each_and_has_no_false_duplicates<H: Harness>(harness: &H) {
    const MESSAGES: usize = 399;
    const AT_ONCE: usize = 16;
    let inboxes = [harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await];
    let (next, firsts) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = |worker: usize| {
        let (next, firsts, inbox) = (&next, &firsts, &inboxes[worker % 2]);
        async move {
            loop {
                let delivery = next.fetch_add(1, Ordering::SeqCst);
                if delivery >= MESSAGES * 3 {
                    return;
                }
                // Copies come close together, so that they meet.
                let number = delivery / 3;
                let (told, what) = (message(format!("crowd {number}"), "payload"), format!("crowd {number}"));
                // Whichever of the three comes first fails for two of five messages, and then once more.
                for attempt in 0.. {
                    let fails = number % 5 < 2 && attempt + delivery % 3 < 2;
                    let work = Work { fails, ..Work::new(&what) };
                    match harness.process(inbox, &told, work).await {
                        Ok(Processed::First(())) => {
                            firsts.fetch_add(1, Ordering::SeqCst);
                            break;
                        }
                        Ok(Processed::Duplicate) => {
                            assert_eq!(harness.effects(&what).await, 1, "a false duplicate of {what}");
                            break;
                        }
                        Ok(Processed::Busy { .. }) | Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                        Ok(other) => panic!("{what} was told {other:?}"),
                    }
                }
            }
        }
    };
    together((0..AT_ONCE).map(worker)).await;
    assert_eq!(firsts.load(Ordering::SeqCst), MESSAGES);
    for number in 0..MESSAGES {
        assert_eq!(harness.effects(&format!("crowd {number}")).await, 1, "crowd {number}");
    }
}

async fn deliver_until_done<H: Harness>(
    harness: &H,
    inbox: &H::Inbox,
    told: &Message,
    work: Work,
    firsts: &AtomicUsize,
) {
    for _ in 0..2_000 {
        match harness.process(inbox, told, work.clone()).await {
            Ok(Processed::First(())) => {
                firsts.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Ok(Processed::Duplicate) => return,
            Ok(told) if !is_busy(told) => panic!("told {told:?}"),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
    panic!("the message stays busy");
}

/// Drives futures side by side, on the caller's task, so that they may borrow.
pub(super) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(move |cx| {
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) {
            return Poll::Ready(done.iter_mut().filter_map(Option::take).collect());
        }
        Poll::Pending
    })
    .await
}
