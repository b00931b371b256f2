//! Messages that fail again and again (M6).

use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use idempotency::Inbox;
use idempotency::inbox::{Accept, InboxTx, Message, Opened, ProcessError, Processed};

use super::lab::{Lab, message, on_each, process};

on_each!(
    a_message_that_fails_too_often_is_poison
    the_brokers_own_count_goes_first
    a_processed_message_is_never_poison
    a_callers_transaction_is_told_and_not_marked
    failures_are_purged
    a_failure_prolongs_the_count
    a_panic_counts_and_what_is_abandoned_does_not
);

const TWICE: NonZeroU32 = NonZeroU32::new(2).unwrap();

async fn fail<L: Lab>(inbox: &Inbox<L::DB>, message: &Message) -> Option<u64> {
    let mut seen = None;
    let failed = inbox
        .process(message, |mut tx| {
            seen = tx.attempt();
            async move {
                L::write(&mut tx, "failed").await.unwrap();
                Err::<(), _>("as the test wants")
            }
        })
        .await;
    assert!(matches!(failed, Err(ProcessError::Handler("as the test wants"))), "{failed:?}");
    seen
}

// M6: counted after the rollback, on the same connection: a pool of one is enough.
async fn a_message_that_fails_too_often_is_poison<L: Lab>(lab: L) {
    let inbox = lab.builder("poison").poison_after(TWICE).build().await.unwrap();
    let (bad, good) = (message("bad"), message("good"));
    assert_eq!(fail::<L>(&inbox, &bad).await, Some(1));
    assert_eq!(fail::<L>(&inbox, &bad).await, Some(2));
    assert_eq!(process::<L>(&inbox, &bad, "poisoned").await, Processed::Poison);
    assert_eq!(process::<L>(&inbox, &bad, "poisoned").await, Processed::Poison);
    assert_eq!(process::<L>(&inbox, &good, "good").await, Processed::First(()));
    // Another consumer counts for itself.
    let other = lab.builder("other").poison_after(TWICE).build().await.unwrap();
    assert_eq!(process::<L>(&other, &bad, "other").await, Processed::First(()));
    inbox.forget_failures(bad.id()).await.unwrap();
    assert_eq!(fail::<L>(&inbox, &bad).await, Some(1));
    inbox.record_failure(bad.id()).await.unwrap();
    assert_eq!(process::<L>(&inbox, &bad, "poisoned").await, Processed::Poison);
    assert_eq!((lab.effects("failed").await, lab.effects("poisoned").await), (0, 0));
    // Without a limit nobody counts.
    let unlimited = lab.inbox("poison").await;
    for _ in 0..4 {
        assert_eq!(fail::<L>(&unlimited, &bad).await, None);
    }
    assert_eq!(process::<L>(&unlimited, &bad, "in the end").await, Processed::First(()));
}

// M6
async fn the_brokers_own_count_goes_first<L: Lab>(lab: L) {
    let inbox = lab.builder("broker").poison_after(TWICE).build().await.unwrap();
    let told = message("1");
    for _ in 0..4 {
        assert_eq!(fail::<L>(&inbox, &told.clone().with_deliveries(2)).await, Some(2));
    }
    assert_eq!(process::<L>(&inbox, &told.clone().with_deliveries(3), "late").await, Processed::Poison);
    assert_eq!(process::<L>(&inbox, &told.with_deliveries(2), "in time").await, Processed::First(()));
}

// M6, case B15: an acknowledgement that is lost again and again is no reason to put a processed message aside.
async fn a_processed_message_is_never_poison<L: Lab>(lab: L) {
    let inbox = lab.builder("processed").poison_after(TWICE).build().await.unwrap();
    let told = message("1");
    assert_eq!(process::<L>(&inbox, &told, "once").await, Processed::First(()));
    for deliveries in 2..10 {
        let again = told.clone().with_deliveries(deliveries);
        assert_eq!(process::<L>(&inbox, &again, "once").await, Processed::Duplicate);
    }
    let other = Message::new(told.id().clone(), "other").with_deliveries(9);
    assert_eq!(process::<L>(&inbox, &other, "once").await, Processed::Conflict);
}

// M6: the transaction is the caller's and goes on, so the mark must not be left in it.
async fn a_callers_transaction_is_told_and_not_marked<L: Lab>(lab: L) {
    let inbox = lab.builder("callers").poison_after(TWICE).build().await.unwrap();
    let (bad, good) = (message("bad"), message("good"));
    for _ in 0..2 {
        inbox.record_failure(bad.id()).await.unwrap();
    }
    let mut tx = lab.begin().await;
    assert!(matches!(inbox.accept(&mut tx, &bad).await.unwrap(), Accept::Poison));
    let told = inbox.accept_all(&mut tx, &[bad.clone(), good.clone(), bad.clone()]).await.unwrap();
    assert!(matches!(told[..], [Accept::Poison, Accept::First(_), Accept::Poison]), "{told:?}");
    L::write(&mut tx, "neighbour").await.unwrap();
    tx.commit().await.unwrap();
    drop(told);
    assert_eq!(lab.effects("neighbour").await, 1);
    inbox.forget_failures(bad.id()).await.unwrap();
    assert_eq!(process::<L>(&inbox, &bad, "redriven").await, Processed::First(()));
    assert_eq!(process::<L>(&inbox, &good, "good").await, Processed::Duplicate);
}

// M8, case B35
async fn failures_are_purged<L: Lab>(lab: L) {
    let inbox = lab.builder("purged").poison_after(TWICE).build().await.unwrap();
    for number in 0..3 {
        fail::<L>(&inbox, &message(&format!("{number}"))).await;
    }
    assert_eq!(inbox.purge(10).await.unwrap(), 0);
    lab.run(&format!("UPDATE idempotency_inbox_failures SET expires_at = {}", L::PAST)).await;
    assert_eq!(inbox.purge(2).await.unwrap(), 2);
    assert_eq!(inbox.purge(2).await.unwrap(), 1);
    assert_eq!(lab.count("SELECT count(*) FROM idempotency_inbox_failures").await, 0);
}

// M8: a count is kept from the last failure on.
async fn a_failure_prolongs_the_count<L: Lab>(lab: L) {
    let inbox = lab.builder("prolonged").poison_after(TWICE).build().await.unwrap();
    let bad = message("bad");
    fail::<L>(&inbox, &bad).await;
    lab.run(&format!("UPDATE idempotency_inbox_failures SET expires_at = {}", L::PAST)).await;
    fail::<L>(&inbox, &bad).await;
    assert_eq!(inbox.purge(10).await.unwrap(), 0);
    assert_eq!(process::<L>(&inbox, &bad, "poisoned").await, Processed::Poison);
}

// M6
async fn a_panic_counts_and_what_is_abandoned_does_not<L: Lab>(lab: L) {
    let inbox = lab.builder("panics").poison_after(TWICE).build().await.unwrap();
    let told = message("1");
    for _ in 0..3 {
        let Opened::First(first) = inbox.open(&told).await.unwrap() else { panic!("not first") };
        assert_eq!(first.attempt(), Some(1));
        first.abandon().await;
    }
    for _ in 0..2 {
        let panicking = inbox.process(&told, |tx: InboxTx<L::DB>| async move {
            drop(tx);
            panic!("as the test wants");
            #[allow(unreachable_code)]
            Ok::<(), sqlx::Error>(())
        });
        assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
    }
    assert_eq!(process::<L>(&inbox, &told, "poisoned").await, Processed::Poison);
}
