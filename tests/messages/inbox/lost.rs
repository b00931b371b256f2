//! Transactions that the database has ended (M3, M4).

use std::time::Duration;

use idempotency::ErrorKind;
use idempotency::inbox::{Accept, ProcessError, Processed};
use idempotency::store::Isolation;
use sqlx::{Connection, MySqlConnection, MySqlPool};

use super::lab::{Lab, MariaDbLab, MySqlLab, NoWaitLab, PostgresLab, SqliteLab, message, process};
use crate::support::mysql::assert_is_in_order;

/// Has the transaction on `connection` rolled back by a deadlock: a rival that has changed more than it wants its row while
/// it waits for one of the rival's.
async fn lose<const W: bool>(lab: &MySqlLab<W>, connection: &mut MySqlConnection) -> sqlx::Error {
    lab.run("CREATE TABLE IF NOT EXISTS accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB").await;
    lab.run("INSERT IGNORE INTO accounts (id, n) VALUES (1, 0), (2, 0)").await;
    let (mine, theirs) = ("UPDATE accounts SET n = n + 1 WHERE id = 1", "UPDATE accounts SET n = n + 1 WHERE id = 2");
    let mut rival = lab.pool().begin_with("BEGIN").await.unwrap();
    for _ in 0..50 {
        sqlx::query("INSERT INTO effects (what) VALUES ('heavy')").execute(&mut *rival).await.unwrap();
    }
    sqlx::query(theirs).execute(&mut *rival).await.unwrap();
    sqlx::query(mine).execute(&mut *connection).await.unwrap();
    let rivals = tokio::spawn(async move {
        sqlx::query(mine).execute(&mut *rival).await.unwrap();
        rival.rollback().await.unwrap();
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let lost = sqlx::query(theirs).execute(connection).await.unwrap_err();
    rivals.await.unwrap();
    lost
}

async fn assert_pool_is_clean(pool: &MySqlPool) {
    let mut connections = Vec::new();
    while let Some(connection) = pool.try_acquire() {
        connections.push(connection);
    }
    for connection in &mut connections {
        assert_is_in_order(connection).await;
    }
}

// M4, case B16: the handler swallows a deadlock and writes on. Nothing of it is kept, and the redelivery runs.
async fn swallows<const W: bool>(lab: MySqlLab<W>) {
    let inbox = lab.inbox("swallows").await;
    let lab = &lab;
    for nth in ["before", "after"] {
        let told = message(nth);
        let done = inbox
            .process(&told, |mut tx| async move {
                MySqlLab::<W>::write(&mut tx, "before the deadlock").await?;
                let lost = lose(lab, &mut tx).await;
                assert!(idempotency::is_retryable::<sqlx::MySql>(&lost), "{lost:?}");
                if nth == "after" {
                    // Refused, or held back: the session cannot write. This handler does not care.
                    let _ = MySqlLab::<W>::write(&mut tx, "after the deadlock").await;
                    let _ = MySqlLab::<W>::write(&mut tx, "after the deadlock").await;
                }
                Ok::<_, sqlx::Error>(())
            })
            .await;
        assert!(
            matches!(done, Err(ProcessError::Inbox(ref error)) if error.kind() == ErrorKind::TransactionEnded),
            "{done:?}"
        );
        assert_eq!(lab.effects("before the deadlock").await, 0);
        assert_eq!(lab.effects("after the deadlock").await, 0);
        assert_eq!(process::<MySqlLab<W>>(&inbox, &told, "redelivered").await, Processed::First(()));
    }
    assert_eq!(lab.effects("redelivered").await, 2);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_pool_is_clean(lab.pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_swallows_a_lost_transaction_commits_nothing() {
    swallows(MariaDbLab::new(Isolation::ReadCommitted).await).await;
    swallows(MariaDbLab::new(Isolation::RepeatableRead).await).await;
    swallows(NoWaitLab::new(Isolation::ReadCommitted).await).await;
}

// M3, M4: in a transaction of the caller's the guard tells, and the session can write no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_callers_transaction_that_was_lost_cannot_go_on_after_its_guard_has_looked() {
    let lab = MariaDbLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("callers").await;
    let mut tx = lab.begin().await;
    let Accept::First(guard) = inbox.accept(&mut tx, &message("1")).await.unwrap() else { panic!("not first") };
    lose(&lab, &mut tx).await;
    assert_eq!(guard.confirm(&mut tx).await.unwrap_err().kind(), ErrorKind::TransactionEnded);
    for _ in 0..2 {
        assert!(MariaDbLab::write(&mut tx, "too late").await.is_err());
    }
    assert!(tx.commit().await.is_err());
    drop(guard);
    assert_eq!(lab.effects("too late").await, 0);
    assert_eq!(process::<MariaDbLab>(&inbox, &message("1"), "redelivered").await, Processed::First(()));
}

// M3: accept itself is the victim: on MySQL its INSERT waits for a gap that a rival has locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_in_accept_loses_the_transaction_for_good() {
    let lab = NoWaitLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("victim").await;
    lab.run("INSERT INTO effects (what) VALUES ('row')").await;
    let mut rival = lab.pool().begin_with("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN").await.unwrap();
    for _ in 0..50 {
        sqlx::query("INSERT INTO effects (what) VALUES ('heavy')").execute(&mut *rival).await.unwrap();
    }
    sqlx::query("SELECT * FROM idempotency_inbox FOR UPDATE").fetch_all(&mut *rival).await.unwrap();
    let mut tx = lab.begin().await;
    NoWaitLab::write(&mut tx, "lost").await.unwrap();
    let row = "UPDATE effects SET what = 'row' WHERE id = 1";
    sqlx::query(row).execute(&mut *tx).await.unwrap();
    let rivals = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        sqlx::query(row).execute(&mut *rival).await.unwrap();
        rival.rollback().await.unwrap();
    });
    let lost = inbox.accept(&mut tx, &message("1")).await.unwrap_err();
    rivals.await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::TransactionLost, "{lost:?}");
    for _ in 0..2 {
        assert!(NoWaitLab::write(&mut tx, "lost").await.is_err());
        assert!(inbox.accept(&mut tx, &message("2")).await.is_err());
    }
    assert!(tx.commit().await.is_err());
    assert_eq!(lab.effects("lost").await, 0);
    assert_eq!(process::<NoWaitLab>(&inbox, &message("1"), "redelivered").await, Processed::First(()));
}

// M3: where MariaDB refuses to lock what is newer than the snapshot, it rolls the whole transaction back.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_newer_than_the_snapshot_may_lose_the_transaction() {
    let first = "SET SESSION innodb_snapshot_isolation = ON";
    let lab = MariaDbLab::in_sessions_of(first, Isolation::RepeatableRead).await;
    let (inbox, elsewhere) = (lab.inbox("snapshot").await, lab.inbox("snapshot").await);
    let mut tx = lab.begin().await;
    MariaDbLab::write(&mut tx, "lost").await.unwrap();
    sqlx::query("SELECT count(*) FROM effects").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(process::<MariaDbLab>(&elsewhere, &message("1"), "newer").await, Processed::First(()));
    match inbox.accept(&mut tx, &message("1")).await {
        Ok(told) => assert!(matches!(told, Accept::Duplicate), "{told:?}"),
        Err(lost) => {
            assert_eq!(lost.kind(), ErrorKind::TransactionLost, "{lost:?}");
            assert!(MariaDbLab::write(&mut tx, "lost").await.is_err());
            assert!(tx.commit().await.is_err());
            assert_eq!(lab.effects("lost").await, 0);
        }
    }
    // In a transaction of its own a delivery has read nothing before.
    assert_eq!(process::<MariaDbLab>(&inbox, &message("1"), "newer").await, Processed::Duplicate);
}

// M3
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_server_has_ended_loses_its_transaction() {
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("ended").await;
    let mut tx = lab.begin().await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    lab.count(&format!("SELECT count(*) FROM (SELECT pg_terminate_backend({pid})) AS ended")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lost = inbox.accept(&mut tx, &message("1")).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::TransactionLost, "{lost:?}");
    assert!(PostgresLab::write(&mut tx, "lost").await.is_err());

    let lab = MariaDbLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("ended").await;
    let mut tx = lab.begin().await;
    let id: u64 = sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut *tx).await.unwrap();
    lab.run(&format!("KILL {id}")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lost = inbox.accept(&mut tx, &message("1")).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::TransactionLost, "{lost:?}");
    assert!(MariaDbLab::write(&mut tx, "lost").await.is_err());
}

// M4, case T18: sqlx's own commit says Ok here.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_swallowed_error_is_no_success() {
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("aborted").await;
    let done = inbox
        .process(&message("1"), |mut tx| async move {
            PostgresLab::write(&mut tx, "aborted").await?;
            assert!(sqlx::query("SELECT 1 / 0").execute(&mut *tx).await.is_err());
            Ok::<_, sqlx::Error>(())
        })
        .await;
    assert!(
        matches!(done, Err(ProcessError::Inbox(ref error)) if error.kind() == ErrorKind::TransactionAborted),
        "{done:?}"
    );
    assert_eq!(lab.effects("aborted").await, 0);
    let mut tx = lab.begin().await;
    assert!(sqlx::query("SELECT 1 / 0").execute(&mut *tx).await.is_err());
    let refused = inbox.accept(&mut tx, &message("1")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TransactionAborted);
    tx.rollback().await.unwrap();
    assert_eq!(process::<PostgresLab>(&inbox, &message("1"), "aborted").await, Processed::First(()));
}

// M4: a constraint that is checked at COMMIT. It counts as a failure of the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_database_refuses_is_no_success_and_counts() {
    async fn refuses<L: Lab>(lab: L, statement: &'static str) {
        let limit = std::num::NonZeroU32::new(2).unwrap();
        let inbox = lab.builder("refused").poison_after(limit).build().await.unwrap();
        for _ in 0..2 {
            let done = inbox
                .process(&message("1"), |mut tx| async move {
                    L::write(&mut tx, "refused").await?;
                    L::raw(&mut tx, statement).await
                })
                .await;
            assert!(
                matches!(done, Err(ProcessError::Inbox(ref error)) if error.kind() == ErrorKind::CommitRefused),
                "{done:?}"
            );
        }
        assert_eq!(lab.effects("refused").await, 0);
        assert_eq!(process::<L>(&inbox, &message("1"), "refused").await, Processed::Poison);
        assert_eq!(process::<L>(&inbox, &message("2"), "fine").await, Processed::First(()));
    }
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    lab.run("CREATE TABLE strict (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    refuses(lab, "INSERT INTO strict (id) VALUES (1), (1)").await;
    let lab = SqliteLab::new().await;
    lab.run(
        "CREATE TABLE strict (id INTEGER PRIMARY KEY, of INTEGER REFERENCES strict (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    refuses(lab, "INSERT INTO strict (id, of) VALUES (1, 2)").await;
}

// A connection of the pool that has lost its transaction is of use again.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_lost_a_transaction_do_not_stay_in_the_pool() {
    let lab = MariaDbLab::new(Isolation::ReadCommitted).await;
    let inbox = lab.inbox("pool").await;
    for round in 0..3 {
        let mut tx = lab.begin().await;
        let told = inbox.accept(&mut tx, &message(&format!("{round}"))).await.unwrap();
        let Accept::First(guard) = told else { panic!("not first") };
        sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
        assert!(guard.confirm(&mut tx).await.is_err());
        drop(tx);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..25 {
        let mut connection = lab.pool().acquire().await.unwrap();
        connection.ping().await.unwrap();
        assert_is_in_order(&mut connection).await;
    }
}
