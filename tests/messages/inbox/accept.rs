//! Messages in transactions of the caller's (M1, M3).

use std::time::Duration;

use idempotency::ErrorKind;
use idempotency::inbox::{Accept, InboxDialect, Processed};
use idempotency::store::Isolation;
use idempotency::testing::TestTx;
use sqlx::Connection;

use super::lab::{Lab, PostgresLab, SqliteLab, message, on_each, process};

on_each!(
    each_kind_of_transaction_will_do
    a_mark_in_a_nested_transaction_is_undone_with_it
    a_message_of_the_same_transaction_is_a_duplicate
    a_guard_keeps_its_message_busy_until_it_is_dropped
    a_guard_whose_mark_is_gone_refuses_to_confirm
    a_guard_confirms_no_mark_but_its_own
    a_confirmed_mark_is_kept_from_then_on
);

fn is_first<DB: InboxDialect>(told: &Accept<DB>) -> bool {
    matches!(told, Accept::First(_))
}

// M1: sqlx's, that of a guarded request, that of another message.
async fn each_kind_of_transaction_will_do<L: Lab>(lab: L) {
    let (inbox, other) = (lab.inbox("kinds").await, lab.inbox("other kinds").await);
    let mut tx = lab.begin().await;
    let told = inbox.accept(&mut tx, &message("sqlx")).await.unwrap();
    assert!(is_first(&told));
    tx.commit().await.unwrap();

    let test = TestTx::begin(lab.pool()).await.unwrap();
    let mut tx = test.tx().await.unwrap();
    let Accept::First(guard) = inbox.accept(&mut tx, &message("request")).await.unwrap() else { panic!("not first") };
    L::write(&mut tx, "request").await.unwrap();
    guard.confirm(&mut tx).await.unwrap();
    drop(tx);
    test.into_transaction().unwrap().commit().await.unwrap();
    drop(guard);

    let done = inbox
        .process(&message("outer"), |mut tx| async move {
            let Accept::First(guard) = other.accept(&mut tx, &message("inner")).await.unwrap() else {
                panic!("not first")
            };
            L::write(&mut tx, "inner").await?;
            guard.confirm(&mut tx).await.unwrap();
            Ok::<_, sqlx::Error>(())
        })
        .await;
    assert!(matches!(done, Ok(Processed::First(()))), "{done:?}");

    drop(told);
    for id in ["sqlx", "request", "outer"] {
        assert_eq!(process::<L>(&inbox, &message(id), id).await, Processed::Duplicate, "{id}");
    }
    let other = lab.inbox("other kinds").await;
    assert_eq!(process::<L>(&other, &message("inner"), "inner").await, Processed::Duplicate);
    assert_eq!((lab.effects("request").await, lab.effects("inner").await), (1, 1));
}

// M7: one bad message of a batch, without its neighbours.
async fn a_mark_in_a_nested_transaction_is_undone_with_it<L: Lab>(lab: L) {
    let inbox = lab.inbox("nested").await;
    let mut tx = lab.begin().await;
    let outer = inbox.accept(&mut tx, &message("outer")).await.unwrap();
    let mut nested = Connection::begin(&mut *tx).await.unwrap();
    let inner = inbox.accept(&mut nested, &message("inner")).await.unwrap();
    assert!(is_first(&outer) && is_first(&inner));
    L::write(&mut nested, "inner").await.unwrap();
    nested.rollback().await.unwrap();
    L::write(&mut tx, "outer").await.unwrap();
    tx.commit().await.unwrap();
    drop((outer, inner));
    assert_eq!(process::<L>(&inbox, &message("outer"), "outer").await, Processed::Duplicate);
    assert_eq!(process::<L>(&inbox, &message("inner"), "inner").await, Processed::First(()));
    assert_eq!((lab.effects("outer").await, lab.effects("inner").await), (1, 1));
}

async fn a_message_of_the_same_transaction_is_a_duplicate<L: Lab>(lab: L) {
    let inbox = lab.inbox("same").await;
    let mut tx = lab.begin().await;
    drop(inbox.accept(&mut tx, &message("1")).await.unwrap());
    assert!(matches!(inbox.accept(&mut tx, &message("1")).await.unwrap(), Accept::Duplicate));
    tx.rollback().await.unwrap();
    assert_eq!(process::<L>(&inbox, &message("1"), "same").await, Processed::First(()));
}

// M3: told so without a look at the database, where nothing is marked any more.
async fn a_guard_keeps_its_message_busy_until_it_is_dropped<L: Lab>(lab: L) {
    let inbox = lab.inbox("guards").await;
    let mut tx = lab.begin().await;
    let guard = inbox.accept(&mut tx, &message("1")).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(matches!(process::<L>(&inbox, &message("1"), "guarded").await, Processed::Busy { .. }));
    drop(guard);
    assert_eq!(process::<L>(&inbox, &message("1"), "guarded").await, Processed::First(()));
}

// M4: whatever has undone it.
async fn a_guard_whose_mark_is_gone_refuses_to_confirm<L: Lab>(lab: L) {
    let inbox = lab.inbox("gone").await;
    let mut tx = lab.begin().await;
    let Accept::First(guard) = inbox.accept(&mut tx, &message("1")).await.unwrap() else { panic!("not first") };
    L::raw(&mut tx, "ROLLBACK").await.unwrap();
    let refused = guard.confirm(&mut tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TransactionEnded);
    let _ = tx.rollback().await;
}

// M4: a mark of the same message in the same transaction, made after its own one was undone.
async fn a_guard_confirms_no_mark_but_its_own<L: Lab>(lab: L) {
    let (one, other) = (lab.inbox("own").await, lab.inbox("own").await);
    let mut tx = lab.begin().await;
    let mut nested = Connection::begin(&mut *tx).await.unwrap();
    let Accept::First(undone) = one.accept(&mut nested, &message("1")).await.unwrap() else { panic!("not first") };
    nested.rollback().await.unwrap();
    let Accept::First(guard) = other.accept(&mut tx, &message("1")).await.unwrap() else { panic!("not first") };
    guard.confirm(&mut tx).await.unwrap();
    let refused = undone.confirm(&mut tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TransactionEnded);
    let _ = tx.rollback().await;
}

// M8: from the end of the work, not from its beginning.
async fn a_confirmed_mark_is_kept_from_then_on<L: Lab>(lab: L) {
    let inbox = lab.builder("kept").retention(Duration::from_secs(1)).build().await.unwrap();
    let mut tx = lab.begin().await;
    let Accept::First(guard) = inbox.accept(&mut tx, &message("1")).await.unwrap() else { panic!("not first") };
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    guard.confirm(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(inbox.purge(10).await.unwrap(), 0);
}

// M4: a mark that was committed by hand is not that of the transaction which follows.
#[tokio::test]
async fn on_postgres_a_guard_confirms_in_its_own_transaction_alone() {
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("by hand").await;
    let mut tx = lab.begin().await;
    let Accept::First(guard) = inbox.accept(&mut tx, &message("1")).await.unwrap() else { panic!("not first") };
    PostgresLab::raw(&mut tx, "COMMIT").await.unwrap();
    PostgresLab::raw(&mut tx, "BEGIN").await.unwrap();
    let refused = guard.confirm(&mut tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TransactionEnded);
    tx.rollback().await.unwrap();
}

// M3: refused whether or not somebody writes at the moment, and the transaction can still read.
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_a_transaction_that_may_not_write_is_refused() {
    let lab = SqliteLab::new().await;
    let inbox = lab.inbox("deferred").await;
    let elsewhere = lab.another_pool();
    for somebody_writes in [false, true] {
        let mut deferred = lab.pool().begin().await.unwrap();
        let writer = if somebody_writes { Some(elsewhere.begin_with("BEGIN IMMEDIATE").await.unwrap()) } else { None };
        let begun = std::time::Instant::now();
        for reads_first in [false, true] {
            if reads_first {
                sqlx::query("SELECT count(*) FROM effects").fetch_one(&mut *deferred).await.unwrap();
            }
            let refused = inbox.accept(&mut deferred, &message("1")).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotAWriter, "{refused:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "it waited for the write lock");
        sqlx::query("SELECT count(*) FROM effects").fetch_one(&mut *deferred).await.unwrap();
        deferred.rollback().await.unwrap();
        if let Some(writer) = writer {
            writer.rollback().await.unwrap();
        }
    }
    assert_eq!(process::<SqliteLab>(&inbox, &message("1"), "deferred").await, Processed::First(()));
}

// M3: a mark that was committed after the snapshot is an error of the INSERT, which must not end the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_transaction_with_one_snapshot_goes_on_after_busy() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let lab = PostgresLab::new(isolation).await;
        let (inbox, elsewhere) = (lab.inbox("snapshot").await, lab.inbox("snapshot").await);
        assert_eq!(process::<PostgresLab>(&elsewhere, &message("before"), "before").await, Processed::First(()));
        let mut tx = lab.begin().await;
        sqlx::query("SELECT count(*) FROM effects").fetch_one(&mut *tx).await.unwrap();
        assert_eq!(process::<PostgresLab>(&elsewhere, &message("after"), "after").await, Processed::First(()));
        assert!(matches!(inbox.accept(&mut tx, &message("before")).await.unwrap(), Accept::Duplicate));
        assert!(matches!(inbox.accept(&mut tx, &message("after")).await.unwrap(), Accept::Busy { .. }));
        let batch = [message("after"), message("before")];
        let told = inbox.accept_all(&mut tx, &batch).await.unwrap();
        assert!(told.iter().all(|told| matches!(told, Accept::Busy { .. })), "{told:?}");
        // Under SERIALIZABLE the two transactions may be told to be in each other's way by now.
        if isolation == Isolation::RepeatableRead {
            let first = inbox.accept(&mut tx, &message("new")).await.unwrap();
            assert!(is_first(&first), "{first:?}");
            PostgresLab::write(&mut tx, "new").await.unwrap();
        }
        tx.rollback().await.unwrap();
        assert_eq!(process::<PostgresLab>(&inbox, &message("after"), "after").await, Processed::Duplicate);
    }
}

// M8: a bound of the caller's own stands.
#[tokio::test]
async fn on_postgres_a_callers_transaction_is_bounded_where_it_has_no_bound() {
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("bounds").await;
    for (own, expected) in [(None, "1min"), (Some("SET LOCAL idle_in_transaction_session_timeout = '5min'"), "5min")] {
        let mut tx = lab.begin().await;
        if let Some(own) = own {
            sqlx::raw_sql(own).execute(&mut *tx).await.unwrap();
        }
        let told = inbox.accept(&mut tx, &message("1")).await.unwrap();
        assert!(is_first(&told));
        let bound = "SELECT current_setting('idle_in_transaction_session_timeout')";
        let bound: String = sqlx::query_scalar(bound).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(bound, expected);
        tx.rollback().await.unwrap();
    }
}
