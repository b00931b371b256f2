//! What a second delivery is told.

use std::time::Duration;

use tokio::time::timeout;

use super::{CONSUMER, Gate, Harness, Work, accepted, is_busy, message, processed};
use crate::inbox::Processed;

/// Longer than any call that waits for nobody takes on a busy machine, shorter than any time-out of a lock.
const AT_ONCE: Duration = Duration::from_secs(4);

/// The effect of a message is there once, whichever way it is delivered (cases B16, B21).
pub async fn a_first_delivery_acts_and_a_later_one_is_a_duplicate<H: Harness>(harness: &H) {
    let (here, elsewhere) = (harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await);
    let (one, two) = (message("1", "one"), message("2", "two"));
    assert_eq!(processed(harness, &here, &one, Work::new("one")).await, Processed::First(()));
    assert_eq!(accepted(harness, &here, &two, Work::new("two")).await, Processed::First(()));
    for inbox in [&here, &elsewhere] {
        for (message, what) in [(&one, "one"), (&two, "two")] {
            assert_eq!(processed(harness, inbox, message, Work::new(what)).await, Processed::Duplicate);
            assert_eq!(accepted(harness, inbox, message, Work::new(what)).await, Processed::Duplicate);
            assert_eq!(harness.effects(what).await, 1);
        }
    }
}

/// MySQL's `INSERT … ON DUPLICATE KEY UPDATE id = id` finds one row for the first delivery and one for every later one, as
/// soon as the client asks the server to count found rows. An inbox that goes by that count takes every duplicate for the
/// first (M3).
pub async fn a_row_that_is_found_is_no_row_that_was_inserted<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let told = message("found", "payload");
    let first = accepted(harness, &inbox, &told, Work::new("found")).await;
    let second = accepted(harness, &inbox, &told, Work::new("found")).await;
    let third = accepted(harness, &inbox, &told, Work::new("found")).await;
    assert_eq!([first, second, third], [Processed::First(()), Processed::Duplicate, Processed::Duplicate]);
    assert_eq!(harness.effects("found").await, 1);
}

/// The mark is undone with the effects (case B23).
pub async fn a_delivery_that_fails_leaves_nothing_and_the_next_one_acts<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let told = message("fails", "payload");
    for _ in 0..2 {
        assert!(harness.process(&inbox, &told, Work::new("fails").failing()).await.is_err());
        assert!(harness.accept(&inbox, std::slice::from_ref(&told), Work::new("fails").failing()).await.is_err());
        assert_eq!(harness.effects("fails").await, 0);
    }
    assert_eq!(processed(harness, &inbox, &told, Work::new("fails")).await, Processed::First(()));
    assert_eq!(harness.effects("fails").await, 1);
}

/// The same id with another payload (M5). A payload that is not compared is no other one.
pub async fn another_payload_is_a_conflict<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let (told, other) = (message("same id", "payload"), message("same id", "Payload"));
    let without = crate::inbox::Message::without_payload(told.id().clone());
    assert_eq!(processed(harness, &inbox, &told, Work::new("conflict")).await, Processed::First(()));
    assert_eq!(processed(harness, &inbox, &other, Work::new("conflict")).await, Processed::Conflict);
    assert_eq!(accepted(harness, &inbox, &other, Work::new("conflict")).await, Processed::Conflict);
    assert_eq!(processed(harness, &inbox, &without, Work::new("conflict")).await, Processed::Duplicate);
    assert_eq!(processed(harness, &inbox, &told, Work::new("conflict")).await, Processed::Duplicate);
    assert_eq!(harness.effects("conflict").await, 1);
}

/// While a first delivery runs, a second one in its process is told so at once (M3).
pub async fn a_running_message_is_busy_at_once<H: Harness>(harness: &H) {
    let inbox = harness.inbox(CONSUMER).await;
    let (gate, told) = (Gate::new(), message("running", "payload"));
    let second = async {
        gate.reached().await;
        let asked = timeout(AT_ONCE, processed(harness, &inbox, &told, Work::new("running"))).await;
        gate.open();
        asked
    };
    let (first, second) = tokio::join!(processed(harness, &inbox, &told, Work::new("running").at(&gate)), second);
    assert_eq!(first, Processed::First(()));
    assert!(matches!(second, Ok(told) if is_busy(told)), "a second delivery waited or was told {second:?}");
    assert_eq!(processed(harness, &inbox, &told, Work::new("running")).await, Processed::Duplicate);
    assert_eq!(harness.effects("running").await, 1);
}

/// While a first delivery runs, a second one in another process is told so at once; or it waits until it is over, where the
/// engine has one writer (M3).
pub async fn a_running_message_is_busy_in_another_process<H: Harness>(harness: &H) {
    let (here, elsewhere) = (harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await);
    let (gate, told) = (Gate::new(), message("elsewhere", "payload"));
    let second = async {
        gate.reached().await;
        if H::RIVALS_WAIT {
            let opening = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                gate.open();
            };
            return tokio::join!(processed(harness, &elsewhere, &told, Work::new("elsewhere")), opening).0;
        }
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(timeout(AT_ONCE, processed(harness, &elsewhere, &told, Work::new("elsewhere"))).await);
            asked.push(timeout(AT_ONCE, accepted(harness, &elsewhere, &told, Work::new("elsewhere"))).await);
        }
        gate.open();
        for told in &asked {
            assert!(matches!(told, Ok(told) if is_busy(*told)), "a second delivery waited or was told {told:?}");
        }
        Processed::Duplicate
    };
    let (first, second) = tokio::join!(processed(harness, &here, &told, Work::new("elsewhere").at(&gate)), second);
    assert_eq!((first, second), (Processed::First(()), Processed::Duplicate));
    assert_eq!(processed(harness, &elsewhere, &told, Work::new("elsewhere")).await, Processed::Duplicate);
    assert_eq!(harness.effects("elsewhere").await, 1);
}

/// A running message may still come to nothing: then the other payload is the first (M1).
pub async fn busy_outranks_conflict<H: Harness>(harness: &H) {
    let (here, elsewhere) = (harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await);
    let (gate, told, other) = (Gate::new(), message("outranks", "payload"), message("outranks", "other"));
    let second = async {
        gate.reached().await;
        let mut asked = vec![processed(harness, &here, &other, Work::new("outranks")).await];
        if !H::RIVALS_WAIT {
            asked.push(processed(harness, &elsewhere, &other, Work::new("outranks")).await);
        }
        gate.open();
        asked
    };
    let work = Work::new("outranks").at(&gate).failing();
    let (first, asked) = tokio::join!(harness.process(&here, &told, work), second);
    assert!(first.is_err());
    assert!(asked.iter().all(|told| is_busy(*told)), "told {asked:?}");
    assert_eq!(until_not_busy(harness, &elsewhere, &other, "outranks").await, Processed::First(()));
}

/// A first delivery that is rolled back was never there: whoever asked meanwhile was not told *duplicate*, and whoever asks
/// afterwards acts (M3).
pub async fn nothing_is_a_duplicate_before_the_first_commit<H: Harness>(harness: &H) {
    let (here, elsewhere) = (harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await);
    for round in 0..5 {
        let (gate, told) = (Gate::new(), message(format!("undone {round}"), "payload"));
        let what = format!("undone {round}");
        let rival = async {
            gate.reached().await;
            let rival = if H::RIVALS_WAIT { &here } else { &elsewhere };
            let asked = processed(harness, rival, &told, Work::new(&what)).await;
            gate.open();
            asked
        };
        let (first, rival) = tokio::join!(harness.process(&here, &told, Work::new(&what).at(&gate).failing()), rival);
        assert!(first.is_err());
        assert!(is_busy(rival), "told {rival:?} before anything was committed");
        assert_eq!(until_not_busy(harness, &elsewhere, &told, &what).await, Processed::First(()));
        assert_eq!(harness.effects(&what).await, 1);
    }
}

/// *Busy* for one message does not spoil the transaction for others.
pub async fn a_transaction_goes_on_after_busy<H: Harness>(harness: &H) {
    let (here, elsewhere) = (harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await);
    let (gate, running, free) = (Gate::new(), message("goes on 1", "payload"), message("goes on 2", "payload"));
    if H::RIVALS_WAIT {
        // There is no second transaction beside the first.
        return;
    }
    let second = async {
        gate.reached().await;
        let batch = [running.clone(), free.clone()];
        let asked = super::accepted_all(harness, &elsewhere, &batch, Work::new("goes on")).await;
        gate.open();
        asked
    };
    let (first, asked) = tokio::join!(processed(harness, &here, &running, Work::new("held up").at(&gate)), second);
    assert_eq!(first, Processed::First(()));
    assert!(matches!(asked[..], [Processed::Busy { .. }, Processed::First(())]), "told {asked:?}");
    assert_eq!(harness.effects("goes on").await, 1);
}

/// The rest of a rollback may still be under way on the server.
pub(super) async fn until_not_busy<H: Harness>(
    harness: &H,
    inbox: &H::Inbox,
    message: &crate::inbox::Message,
    what: &str,
) -> Processed<()> {
    for _ in 0..1_000 {
        match harness.process(inbox, message, Work::new(what)).await {
            Ok(told) if !is_busy(told) => return told,
            // Another process may still have the write lock.
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    panic!("the message stays busy");
}
