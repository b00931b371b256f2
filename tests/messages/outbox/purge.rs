//! What a purge takes away beside dead letters.

use idempotency::outbox::Event;

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};

/// An ack may come while a failure of the same event is being recorded, by another relay: the record is left alone then.
/// `now`: the engine's clock in its own form.
async fn a_failure_without_its_event_is_forgotten<L: Lab>(lab: L, now: &str) {
    let outbox = lab.outbox().await;
    let mut tx = lab.transaction().await;
    for key in ["acked", "pending"] {
        outbox.enqueue(&mut tx, &Event::new("d", "t", "k", "/s").key(key)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let failed = format!(
        "INSERT INTO idempotency_outbox_failing \
            (bucket, seq, id, destination, aggregateid, attempts, blocked, failing_since, retry_at, error) \
         SELECT bucket, seq, id, destination, aggregateid, 1, true, {now}, {now}, 'refused' FROM idempotency_outbox"
    );
    assert_eq!(lab.run(failed).await, 2);
    assert_eq!(lab.run("DELETE FROM idempotency_outbox WHERE aggregateid = 'acked'".to_owned()).await, 1);
    assert_eq!(outbox.purge(10).await.unwrap(), 0);
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.pending, stats.blocked), (1, 1));
    assert_eq!(lab.count("SELECT COUNT(*) FROM idempotency_outbox_failing".to_owned()).await, 1);
}

// Cases B29, B35
#[tokio::test]
async fn a_failure_without_its_event_is_forgotten_on_postgres() {
    a_failure_without_its_event_is_forgotten(PostgresLab::new().await, "clock_timestamp()").await;
}

// Cases B29, B35
#[tokio::test]
async fn a_failure_without_its_event_is_forgotten_on_mariadb() {
    a_failure_without_its_event_is_forgotten(MariaDbLab::new().await, "UTC_TIMESTAMP(6)").await;
}

// Cases B29, B35
#[tokio::test]
async fn a_failure_without_its_event_is_forgotten_on_sqlite() {
    a_failure_without_its_event_is_forgotten(SqliteLab::new().await, "1").await;
}
