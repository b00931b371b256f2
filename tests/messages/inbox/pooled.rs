//! Behind PgBouncer in transaction mode, without a statement cache: outside a transaction the two messages of a statement
//! may go to two servers, and the second one would then run whatever somebody else has left there.

use std::num::NonZeroU32;
use std::sync::Arc;

use idempotency::Inbox;
use idempotency::inbox::{Prepared, ProcessError, Processed};
use sqlx::Postgres;
use tokio::task::JoinSet;

use super::lab::{Lab, PostgresLab, message, process};

const OFTEN: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

const WORKERS: u32 = 16;
const ROUNDS: u32 = 40;

/// Each worker does this so many times, all at once, and each time counts a failure. Every one of them is found.
async fn failures_are_counted<W: Future<Output = ()> + Send + 'static>(work: fn(Arc<Inbox<Postgres>>, u32, u32) -> W) {
    let lab = PostgresLab::pooled().await;
    let inbox = Arc::new(lab.builder("pooled").poison_after(OFTEN).build().await.unwrap());
    let mut running = JoinSet::new();
    for worker in 0..WORKERS {
        let inbox = Arc::clone(&inbox);
        running.spawn(async move {
            for round in 0..ROUNDS {
                work(Arc::clone(&inbox), worker, round).await;
            }
        });
    }
    running.join_all().await;
    let counted = "SELECT sum(failures)::bigint FROM idempotency_inbox_failures";
    assert_eq!(lab.count(counted).await, i64::from(WORKERS * ROUNDS));
}

// M6, M8: what stands alone.
#[tokio::test(flavor = "multi_thread")]
async fn statements_of_their_own_are_not_parted() {
    failures_are_counted(|inbox, worker, round| async move {
        let own = message(&format!("{worker} {round}"));
        inbox.record_failure(message("shared").id()).await.unwrap();
        inbox.record_failure(own.id()).await.unwrap();
        inbox.forget_failures(own.id()).await.unwrap();
        assert_eq!(inbox.purge(10).await.unwrap(), 0);
    })
    .await;
}

// M6: the count after a rollback, among others that do the same.
#[tokio::test(flavor = "multi_thread")]
async fn failures_of_handlers_are_counted() {
    failures_are_counted(|inbox, worker, _| async move {
        let failed = inbox.process(&message(&format!("{worker}")), async |_| Err::<(), _>(())).await;
        assert!(matches!(failed, Err(ProcessError::Handler(()))), "{failed:?}");
    })
    .await;
}

// M3: nothing is looked for before the transaction, and the transaction knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_prepared_is_processed_once() {
    let lab = PostgresLab::pooled().await;
    let inbox = lab.inbox("pooled").await;
    let told = message("1");
    assert_eq!(process::<PostgresLab>(&inbox, &told, "once").await, Processed::First(()));
    let Prepared::Ready(ready) = inbox.prepare(&told).await.unwrap() else { panic!("it was looked for") };
    let done = ready.process(async |mut tx| PostgresLab::write(&mut tx, "once").await).await;
    assert!(matches!(done, Ok(Processed::Duplicate)), "{done:?}");
    assert_eq!(lab.effects("once").await, 1);
}
