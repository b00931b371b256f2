//! A message from its delivery to its commit (M1, M3, M4).

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use idempotency::ErrorKind;
use idempotency::inbox::{InboxTx, Opened, ProcessError, Processed};
use idempotency::testing::inbox::Gate;
use sqlx::Connection;

use super::lab::{Lab, message, on_each, process, process_soon};

on_each!(
    the_handlers_own_error_comes_through
    a_panic_goes_on_and_nothing_is_kept
    a_held_transaction_is_an_error_and_the_message_stays_busy
    a_handlers_own_commit_is_an_error_and_the_message_is_processed
    a_handlers_own_rollback_is_an_error_and_the_message_runs_again
    a_forgotten_nested_transaction_is_an_error
    a_nested_transaction_is_undone_alone
    a_running_message_takes_no_connection
    who_waits_for_a_busy_message_holds_no_connection
    the_pieces_do_what_the_whole_does
    a_future_of_process_can_be_spawned
);

// M1: as it is, not as a text.
async fn the_handlers_own_error_comes_through<L: Lab>(lab: L) {
    let inbox = lab.inbox("errors").await;
    #[derive(Debug, PartialEq)]
    struct Declined(u32);
    let told = message("1");
    let failed = inbox
        .process(&told, |mut tx| async move {
            L::write(&mut tx, "declined").await.unwrap();
            Err::<Infallible, _>(Declined(7))
        })
        .await;
    assert!(matches!(failed, Err(ProcessError::Handler(Declined(7)))), "{failed:?}");
    assert_eq!(process::<L>(&inbox, &told, "declined").await, Processed::First(()));
    assert_eq!(lab.effects("declined").await, 1);
}

// M4: the message is free when the panic arrives.
async fn a_panic_goes_on_and_nothing_is_kept<L: Lab>(lab: L) {
    let inbox = lab.inbox("panics").await;
    let told = message("1");
    for in_the_call in [true, false] {
        let panicking = inbox.process(&told, |mut tx: InboxTx<L::DB>| {
            assert!(!in_the_call, "as the test wants");
            async move {
                L::write(&mut tx, "panicked").await.unwrap();
                panic!("as the test wants");
                #[allow(unreachable_code)]
                Ok::<(), Infallible>(())
            }
        });
        assert!(AssertUnwindSafe(panicking).catch_unwind().await.is_err());
        assert_eq!(lab.effects("panicked").await, 0);
    }
    assert_eq!(process::<L>(&inbox, &told, "panicked").await, Processed::First(()));
}

async fn a_held_transaction_is_an_error_and_the_message_stays_busy<L: Lab>(lab: L) {
    let inbox = lab.inbox("holds").await;
    let told = message("1");
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let held = inbox
        .process(&told, |mut tx| async move {
            L::write(&mut tx, "held").await.unwrap();
            keep.send(tx).map_err(drop)
        })
        .await;
    assert!(
        matches!(held, Err(ProcessError::Inbox(ref error)) if error.kind() == ErrorKind::HeldTransaction),
        "{held:?}"
    );
    assert!(matches!(process::<L>(&inbox, &told, "held").await, Processed::Busy { .. }));
    drop(kept.recv().await.unwrap());
    assert_eq!(process_soon::<L>(&inbox, &told, "held").await, Processed::First(()));
    assert_eq!(lab.effects("held").await, 1);
}

fn is_ended<T>(done: &Result<Processed<T>, ProcessError<sqlx::Error>>) -> bool {
    matches!(done, Err(ProcessError::Inbox(error)) if error.kind() == ErrorKind::TransactionEnded)
}

// M4: what was committed by hand is there with its mark, so the message is not run again.
async fn a_handlers_own_commit_is_an_error_and_the_message_is_processed<L: Lab>(lab: L) {
    let inbox = lab.inbox("commits").await;
    for (number, then) in [None, Some("BEGIN")].into_iter().enumerate() {
        let (told, what) = (message(&format!("{number}")), format!("by hand {number}"));
        let ended = inbox
            .process(&told, |mut tx| {
                let what = what.clone();
                async move {
                    L::write(&mut tx, &what).await?;
                    L::raw(&mut tx, "COMMIT").await?;
                    if let Some(then) = then {
                        L::raw(&mut tx, then).await?;
                    }
                    Ok(())
                }
            })
            .await;
        assert!(is_ended(&ended), "{ended:?}");
        assert_eq!(process_soon::<L>(&inbox, &told, &what).await, Processed::Duplicate);
        assert_eq!(lab.effects(&what).await, 1);
    }
}

// M4: the mark is gone with what was written before.
async fn a_handlers_own_rollback_is_an_error_and_the_message_runs_again<L: Lab>(lab: L) {
    let inbox = lab.inbox("rolls back").await;
    for (number, then) in [None, Some("BEGIN")].into_iter().enumerate() {
        let (told, what) = (message(&format!("{number}")), format!("undone {number}"));
        let ended = inbox
            .process(&told, |mut tx| {
                let what = what.clone();
                async move {
                    L::write(&mut tx, &what).await?;
                    L::raw(&mut tx, "ROLLBACK").await?;
                    if let Some(then) = then {
                        L::raw(&mut tx, then).await?;
                    }
                    Ok(())
                }
            })
            .await;
        assert!(is_ended(&ended), "{ended:?}");
        assert_eq!(lab.effects(&what).await, 0);
        assert_eq!(process_soon::<L>(&inbox, &told, &what).await, Processed::First(()));
    }
    // No connection is left inside a transaction: all of them can be used.
    for number in 0..10 {
        assert_eq!(process::<L>(&inbox, &message(&format!("after {number}")), "after").await, Processed::First(()));
    }
    assert_eq!(lab.effects("after").await, 10);
}

async fn a_forgotten_nested_transaction_is_an_error<L: Lab>(lab: L) {
    let inbox = lab.inbox("forgets").await;
    let told = message("1");
    let ended = inbox
        .process(&told, |mut tx| async move {
            let mut nested = Connection::begin(&mut *tx).await?;
            L::write(&mut nested, "nested").await?;
            std::mem::forget(nested);
            Ok(())
        })
        .await;
    assert!(is_ended(&ended), "{ended:?}");
    assert_eq!(process_soon::<L>(&inbox, &told, "nested").await, Processed::First(()));
    assert_eq!(lab.effects("nested").await, 1);
}

async fn a_nested_transaction_is_undone_alone<L: Lab>(lab: L) {
    let inbox = lab.inbox("nests").await;
    let done = inbox
        .process(&message("1"), |mut tx| async move {
            L::write(&mut tx, "outer").await?;
            let mut nested = Connection::begin(&mut *tx).await?;
            L::write(&mut nested, "inner").await?;
            nested.rollback().await
        })
        .await;
    assert!(matches!(done, Ok(Processed::First(()))), "{done:?}");
    assert_eq!((lab.effects("outer").await, lab.effects("inner").await), (1, 0));
}

// M3: with the pool empty a second delivery is told so all the same, and at once.
async fn a_running_message_takes_no_connection<L: Lab>(lab: L) {
    let inbox = lab.inbox("empty pool").await;
    let (told, gate) = (message("1"), Gate::new());
    let first = inbox.process(&told, |tx| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            drop(tx);
            Ok::<_, Infallible>(())
        }
    });
    let second = async {
        gate.reached().await;
        let mut all = Vec::new();
        while let Some(connection) = lab.pool().try_acquire() {
            all.push(connection);
        }
        let begun = Instant::now();
        // The pool may still make new connections: that would take its time, or fail.
        let told = process::<L>(&inbox, &told, "second").await;
        let took = begun.elapsed();
        gate.open();
        (told, took)
    };
    let (first, (second, took)) = tokio::join!(first, second);
    assert!(matches!(first, Ok(Processed::First(()))));
    assert!(matches!(second, Processed::Busy { retry_after } if retry_after > Duration::ZERO), "{second:?}");
    assert!(took < Duration::from_millis(50), "{took:?}");
}

// M4, case B11
async fn who_waits_for_a_busy_message_holds_no_connection<L: Lab>(lab: L) {
    let inbox = lab.builder("waits").wait_up_to(Duration::from_secs(20)).build().await.unwrap();
    let impatient = lab.builder("waits").wait_up_to(Duration::from_millis(50)).build().await.unwrap();
    let (told, gate) = (message("1"), Gate::new());
    let first = inbox.process(&told, |mut tx| {
        let gate = gate.clone();
        async move {
            L::write(&mut tx, "waited for").await?;
            gate.pass().await;
            Ok::<_, sqlx::Error>(())
        }
    });
    let meanwhile = async {
        gate.reached().await;
        let waiting = process::<L>(&inbox, &told, "waited for");
        let looking = async {
            if !L::HAS_ONE_WRITER {
                let before = Instant::now();
                assert!(matches!(process::<L>(&impatient, &told, "waited for").await, Processed::Busy { .. }));
                assert!(before.elapsed() >= Duration::from_millis(50));
            }
            let mut held = 0;
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                held += usize::from(lab.pool().size() as usize - lab.pool().num_idle() > 1);
            }
            gate.open();
            held
        };
        tokio::join!(waiting, looking)
    };
    let (first, (second, held)) = tokio::join!(first, meanwhile);
    assert!(matches!(first, Ok(Processed::First(()))));
    assert_eq!(second, Processed::Duplicate);
    assert!(held <= 10, "a connection beside the first one was held in {held} of 20 looks");
}

async fn the_pieces_do_what_the_whole_does<L: Lab>(lab: L) {
    let inbox = lab.inbox("pieces").await;
    let told = message("1");
    for end in ["dropped", "failed", "abandoned", "committed"] {
        let mut tries = 0;
        let first = loop {
            match inbox.open(&told).await.unwrap() {
                Opened::First(first) => break first,
                Opened::Busy { .. } if tries < 1_000 => tries += 1,
                other => panic!("{end}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let mut tx = first.tx().await.unwrap();
        assert!(first.tx().await.is_err(), "two at a time");
        L::write(&mut tx, end).await.unwrap();
        drop(tx);
        drop(first.tx().await.unwrap());
        match end {
            "dropped" => drop(first),
            "failed" => first.fail().await,
            "abandoned" => first.abandon().await,
            _ => first.commit().await.unwrap(),
        }
        assert_eq!(lab.effects(end).await, i64::from(end == "committed"), "{end}");
    }
    assert!(matches!(inbox.open(&told).await.unwrap(), Opened::Duplicate));
}

// M9: what a service needs.
async fn a_future_of_process_can_be_spawned<L: Lab>(lab: L) {
    let (inbox, lab) = (lab.inbox("spawned").await, Arc::new(lab));
    let handler = |mut tx: InboxTx<L::DB>| async move { L::write(&mut tx, "spawned").await };
    let spawned = tokio::spawn(async move { inbox.process(&message("1"), handler).await.map(|_| ()) });
    spawned.await.unwrap().unwrap();
    assert_eq!(lab.effects("spawned").await, 1);
}
