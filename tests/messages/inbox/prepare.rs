//! What is done for a message before its transaction (M3).

use std::time::Duration;

use futures_util::FutureExt;
use idempotency::Inbox;
use idempotency::inbox::{InboxDialect, Message, Opened, Preparation, Prepared, Processed};
use idempotency::store::Isolation::ReadCommitted;

use super::lab::{Lab, MariaDbLab, NoWaitLab, message, on_each, process};
use crate::support::postgres;

on_each!(
    what_is_prepared_is_busy_until_it_is_dropped
    what_is_prepared_holds_no_connection
    a_dropped_question_gives_its_place_back
    what_was_processed_is_told_before_anything_is_done
    nothing_is_a_duplicate_before_its_commit
);

async fn ready<DB: InboxDialect>(inbox: &Inbox<DB>, message: &Message) -> Preparation<DB> {
    match inbox.prepare(message).await.unwrap() {
        Prepared::Ready(ready) => ready,
        told => panic!("not ready: {told:?}"),
    }
}

// M3: for both ways into the inbox, and for this message alone.
async fn what_is_prepared_is_busy_until_it_is_dropped<L: Lab>(lab: L) {
    let inbox = lab.builder("prepared").retry_after(Duration::from_millis(70)).build().await.unwrap();
    let (told, other) = (message("1"), message("2"));
    let held = ready(&inbox, &told).await;
    assert!(matches!(inbox.prepare(&told).await, Ok(Prepared::Busy { retry_after }) if retry_after.as_millis() == 70));
    assert!(matches!(process::<L>(&inbox, &told, "1").await, Processed::Busy { .. }));
    assert_eq!(process::<L>(&inbox, &other, "2").await, Processed::First(()));
    drop(held);
    let again = ready(&inbox, &told).await;
    let done = again.process(async |mut tx| L::write(&mut tx, "1").await).await;
    assert!(matches!(done, Ok(Processed::First(()))), "{done:?}");
    assert!(matches!(inbox.prepare(&told).await, Ok(Prepared::Duplicate)));
    // A failure gives the place back too.
    let failing = message("3");
    let failed = ready(&inbox, &failing).await.process(async |_| Err::<(), _>("as the test wants")).await;
    assert!(failed.is_err(), "{failed:?}");
    drop(ready(&inbox, &failing).await);
    assert_eq!((lab.effects("1").await, lab.effects("2").await), (1, 1));
}

// M3: more of them than there are connections.
async fn what_is_prepared_holds_no_connection<L: Lab>(lab: L) {
    let inbox = lab.inbox("many").await;
    let mut held = Vec::new();
    for number in 0..30 {
        held.push(ready(&inbox, &message(&format!("{number}"))).await);
    }
    assert_eq!(process::<L>(&inbox, &message("other"), "other").await, Processed::First(()));
    drop(held);
}

async fn a_dropped_question_gives_its_place_back<L: Lab>(lab: L) {
    let inbox = lab.inbox("dropped").await;
    let told = message("1");
    // Polled once, so that it has its place, and most likely waits for its answer.
    drop(inbox.prepare(&told).now_or_never());
    drop(ready(&inbox, &told).await);
    assert_eq!(process::<L>(&inbox, &told, "1").await, Processed::First(()));
}

// M5
async fn what_was_processed_is_told_before_anything_is_done<L: Lab>(lab: L) {
    let inbox = lab.inbox("told").await;
    let told = message("1");
    assert_eq!(process::<L>(&inbox, &told, "1").await, Processed::First(()));
    let again = lab.inbox("told").await;
    assert!(matches!(again.prepare(&told).await, Ok(Prepared::Duplicate)));
    let changed = Message::new(told.id().clone(), "another payload");
    assert!(matches!(again.prepare(&changed).await, Ok(Prepared::Conflict)));
    assert!(matches!(again.prepare(&Message::without_payload(told.id().clone())).await, Ok(Prepared::Duplicate)));
    // Another consumer's, and another sender's.
    drop(ready(&lab.inbox("another").await, &told).await);
}

// M3: what another process has not committed is nothing yet, and what it has is seen in the transaction.
async fn nothing_is_a_duplicate_before_its_commit<L: Lab>(lab: L) {
    let (one, two) = (lab.inbox("rivals").await, lab.inbox("rivals").await);
    let told = message("1");
    let Opened::First(first) = one.open(&told).await.unwrap() else { panic!("not first") };
    let mut tx = first.tx().await.unwrap();
    L::write(&mut tx, "once").await.unwrap();
    drop(tx);
    let ready = ready(&two, &told).await;
    first.commit().await.unwrap();
    let done = ready.process(async |mut tx| L::write(&mut tx, "once").await).await;
    assert!(matches!(done, Ok(Processed::Duplicate)), "{done:?}");
    assert_eq!(lab.effects("once").await, 1);
}

const DIRTY: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";

// M3: also where the host's sessions would see it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_a_duplicate_before_its_commit_in_sessions_that_read_dirty() {
    nothing_is_a_duplicate_before_its_commit(MariaDbLab::in_sessions_of(DIRTY, ReadCommitted).await).await;
    nothing_is_a_duplicate_before_its_commit(NoWaitLab::in_sessions_of(DIRTY, ReadCommitted).await).await;
}

// M3: a look in a serializable transaction would be a reason for others to fail.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_looked_for_where_a_look_leaves_traces() {
    let schema: String =
        sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&postgres::pool_of(1).await).await.unwrap();
    let level = [("search_path", schema.as_str()), ("default_transaction_isolation", "serializable")];
    let pool = postgres::pool_on(postgres::options().options(level), 5).await;
    let inbox = Inbox::new(pool.clone(), "traces").await.unwrap();
    inbox.migrate().await.unwrap();
    // Traces stay as long as somebody is about whom they may concern.
    let mut other = pool.begin().await.unwrap();
    sqlx::raw_sql("CREATE TEMPORARY TABLE writes ON COMMIT DROP AS SELECT 1").execute(&mut *other).await.unwrap();
    drop(ready(&inbox, &message("1")).await);
    let traces = "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation
         WHERE mode = 'SIReadLock' AND relname LIKE 'idempotency_inbox%' AND relnamespace = current_schema()::regnamespace";
    assert_eq!(sqlx::query_scalar::<_, i64>(traces).fetch_one(&pool).await.unwrap(), 0);
    other.rollback().await.unwrap();
}
