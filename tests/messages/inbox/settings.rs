//! What an inbox refuses, and what it warns of (M2, M8).

use std::time::Duration;

use idempotency::inbox::{Message, MessageId, Processed};
use idempotency::store::Isolation;
use idempotency::{ErrorKind, Inbox};

use super::lab::{Lab, MariaDbLab, NoWaitLab, PostgresLab, SqliteLab, message, on_each, process};
use crate::support::{mysql, postgres};

#[path = "../../it/support/counters.rs"]
#[allow(dead_code)]
mod counters;

on_each!(
    a_consumer_must_have_a_name
    missing_tables_are_a_matter_of_set_up
    retention_counts_from_processing
    migrations_may_run_at_once
);

// M2
async fn a_consumer_must_have_a_name<L: Lab>(lab: L) {
    let refused = Inbox::new(lab.pool().clone(), "").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Setup);
}

async fn missing_tables_are_a_matter_of_set_up<L: Lab>(lab: L) {
    let inbox = lab.inbox("set-up").await;
    lab.run("DROP TABLE idempotency_inbox").await;
    let refused = inbox.open(&message("1")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Setup, "{refused:?}");
    let mut tx = lab.begin().await;
    let refused = inbox.accept(&mut tx, &message("1")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Setup, "{refused:?}");
}

// M8: from the end of the work, not from its beginning.
async fn retention_counts_from_processing<L: Lab>(lab: L) {
    let inbox = lab.builder("retention").retention(Duration::from_millis(600)).build().await.unwrap();
    let told = message("1");
    inbox
        .process(&told, |mut tx| async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            L::write(&mut tx, "slow").await
        })
        .await
        .map(|_| ())
        .unwrap();
    assert_eq!(inbox.purge(10).await.unwrap(), 0, "purged at once");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(inbox.purge(10).await.unwrap(), 1);
}

async fn migrations_may_run_at_once<L: Lab>(lab: L) {
    let (one, two, three) = (lab.inbox("a").await, lab.inbox("b").await, lab.inbox("c").await);
    let (one, two, three) = tokio::join!(one.migrate(), two.migrate(), three.migrate());
    one.and(two).and(three).unwrap();
}

// M8, case B27
#[tokio::test(flavor = "current_thread")]
async fn a_redelivery_horizon_beyond_the_retention_is_warned_of() {
    let counters = counters::Counters::default();
    let _guard = counters.install();
    let lab = SqliteLab::new().await;
    let week = Duration::from_secs(7 * 24 * 3600);
    lab.builder("short").redelivery_horizon(week).build().await.unwrap();
    assert_eq!(counters.of("redelivery_beyond_retention"), 0);
    lab.builder("long").redelivery_horizon(week + Duration::from_secs(1)).build().await.unwrap();
    assert_eq!(counters.of("redelivery_beyond_retention"), 1);
    let inbox = lab.inbox("counted").await;
    let told = message("1");
    assert_eq!(process::<SqliteLab>(&inbox, &told, "counted").await, Processed::First(()));
    assert_eq!(process::<SqliteLab>(&inbox, &told, "counted").await, Processed::Duplicate);
    let other = Message::new(told.id().clone(), "other");
    assert_eq!(process::<SqliteLab>(&inbox, &other, "counted").await, Processed::Conflict);
    let counted = ["message_processed", "message_duplicate", "message_conflict"].map(|event| counters.of(event));
    assert_eq!(counted, [1, 1, 1], "{:?}", counters.names());
}

// M3: MySQL's locking reads of absent rows would deadlock deliveries under other levels.
#[tokio::test]
async fn on_mysql_other_levels_are_refused() {
    let lab = NoWaitLab::new(Isolation::RepeatableRead).await;
    assert_eq!(lab.builder("levels").build().await.unwrap_err().kind(), ErrorKind::Setup);
    let lab = MariaDbLab::new(Isolation::RepeatableRead).await;
    lab.builder("levels").build().await.unwrap();
}

// M8: a stalled owner is bounded by the server, and only while its transaction is open.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_owner_does_not_keep_its_message_busy() {
    async fn stalls<L: Lab>(lab: &L, bounded: Inbox<L::DB>) {
        let told = message("1");
        let failed = bounded
            .process(&told, |mut tx| async move {
                L::write(&mut tx, "stalled").await?;
                tokio::time::sleep(Duration::from_millis(2_500)).await;
                L::write(&mut tx, "stalled").await
            })
            .await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(lab.effects("stalled").await, 0);
        let inbox = lab.inbox("stalls").await;
        let told = super::lab::process_soon::<L>(&inbox, &told, "stalled").await;
        assert_eq!(told, Processed::First(()));
    }
    let second = Some(Duration::from_secs(1));
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    stalls(&lab, lab.builder("stalls").transaction_timeout(second).build().await.unwrap()).await;
    let lab = MariaDbLab::new(Isolation::ReadCommitted).await;
    stalls(&lab, lab.builder("stalls").transaction_timeout(second).build().await.unwrap()).await;
}

// M8: the bound of a session of MySQL ends with its transaction, whichever way that ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_comes_back_without_its_bound() {
    let pool = mysql::pool_of(1).await;
    mysql::create_effects(&pool).await;
    let inbox = Inbox::builder(pool.clone(), "bound").transaction_timeout(Some(Duration::from_secs(7))).build().await;
    let inbox = inbox.unwrap();
    inbox.migrate().await.unwrap();
    let usual: u64 = sqlx::query_scalar("SELECT @@SESSION.wait_timeout").fetch_one(&pool).await.unwrap();
    for (number, fails) in [false, true, false].into_iter().enumerate() {
        let told = message(&format!("{}", number.min(1)));
        let done = inbox.process(&told, |mut tx| async move {
            let bound: u64 = sqlx::query_scalar("SELECT @@SESSION.wait_timeout").fetch_one(&mut *tx).await?;
            assert_eq!(bound, 7);
            if fails { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
        });
        assert_eq!(done.await.is_err(), fails);
        let now: u64 = sqlx::query_scalar("SELECT @@SESSION.wait_timeout").fetch_one(&pool).await.unwrap();
        assert_eq!(now, usual);
        mysql::assert_is_in_order(&mut pool.acquire().await.unwrap()).await;
    }
}

// M2: what is looked up by hand is found by the form that is stored.
#[tokio::test]
async fn the_stored_form_can_be_looked_up() {
    let (schema, options) = postgres::new_schema().await;
    let pool = postgres::pool_on(options, 4).await;
    let inbox = Inbox::builder(pool.clone(), "stored").schema(&schema).build().await.unwrap();
    inbox.migrate().await.unwrap();
    for id in ["short".to_owned(), "x".repeat(1_000)] {
        let id = MessageId::new("source", id).unwrap();
        let told = Message::without_payload(id.clone());
        let done = inbox.process(&told, async |tx| {
            drop(tx);
            Ok::<_, sqlx::Error>(())
        });
        done.await.map(|_| ()).unwrap();
        let [source, id] = id.stored();
        let text = format!("SELECT count(*) FROM {schema}.idempotency_inbox WHERE source = $1 AND id = $2");
        let count: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(text)).bind(source).bind(id).fetch_one(&pool).await.unwrap();
        assert_eq!(count, 1);
    }
}
