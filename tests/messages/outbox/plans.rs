//! How servers find pending events (M36, M38).

use idempotency::testing::outbox::plans;

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};

/// Fills the table behind the library's back: so many rows in each bucket.
const ROWS: usize = 300;

// M36: a range of the primary key for each bucket; acks by primary key.
#[tokio::test]
async fn on_postgres_by_the_primary_key() {
    let lab = PostgresLab::new().await;
    lab.run(format!(
        "INSERT INTO idempotency_outbox (bucket, id, destination, aggregatetype, type, source, payload)
         SELECT n % 64, gen_random_uuid(), 'd', 't', 't', 's', repeat('x', 300)::bytea
         FROM generate_series(1, {}) AS n",
        64 * ROWS
    ))
    .await;
    for analyzed in [false, true] {
        if analyzed {
            lab.run("ANALYZE".to_owned()).await;
        }
        let [poll, delete] = plans(&lab).await;
        for plan in [&poll, &delete] {
            let about: Vec<&String> = plan.iter().filter(|line| line.contains(" on idempotency_outbox o")).collect();
            assert_eq!(about.iter().filter(|line| line.contains("Seq Scan")).count(), 0, "{plan:#?}");
            // An ack has both; the planner takes either.
            let by_index = ["Index Scan using idempotency_outbox_pkey", "Index Scan using idempotency_outbox_id"];
            assert!(about.iter().any(|line| by_index.iter().any(|index| line.contains(index))), "{plan:#?}");
        }
        let range = "Index Cond: ((bucket = p.bucket) AND (seq > p.after))";
        assert!(poll.iter().any(|line| line.contains(range)), "{poll:#?}");
        // Nothing is sorted but the few rows that are found.
        assert!(poll.iter().filter(|line| line.contains("Sort  (")).count() <= 1, "{poll:#?}");
    }
}

// M36: the planner takes a look at a long table for a large one, which is no reason to compile it each time.
#[tokio::test]
async fn on_postgres_without_compiling_them() {
    let lab = PostgresLab::new().await;
    lab.run(
        "INSERT INTO idempotency_outbox (bucket, id, destination, aggregatetype, type, source, payload)
         SELECT 7, gen_random_uuid(), 'd', 't', 't', 's', 'x' FROM generate_series(1, 100000)"
            .to_owned(),
    )
    .await;
    // This table alone, as a server does that has seen it grow.
    lab.run("ANALYZE idempotency_outbox".to_owned()).await;
    let [poll, delete] = plans(&lab).await;
    assert!(poll.iter().chain(&delete).all(|line| !line.contains("JIT")), "{poll:#?} {delete:#?}");
}

// M36
#[tokio::test]
async fn on_sqlite_by_an_index_on_the_bucket() {
    let lab = SqliteLab::new().await;
    lab.run(format!(
        "WITH RECURSIVE n (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < {})
         INSERT INTO idempotency_outbox (bucket, id, destination, aggregatetype, type, source, payload, enqueued_at)
         SELECT n % 64, hex(randomblob(18)), 'd', 't', 't', 's', zeroblob(300), 0 FROM n",
        64 * ROWS
    ))
    .await;
    for analyzed in [false, true] {
        if analyzed {
            lab.run("ANALYZE".to_owned()).await;
        }
        let [poll, delete] = plans(&lab).await;
        let range = "SEARCH o USING INDEX idempotency_outbox_bucket (bucket=? AND rowid>?)";
        assert_eq!(poll.iter().filter(|line| *line == range).count(), 64, "{poll:#?}");
        assert!(poll.iter().all(|line| !line.contains("SCAN o") && !line.contains("TEMP B-TREE")), "{poll:#?}");
        assert!(delete.iter().any(|line| line == "SEARCH o USING INTEGER PRIMARY KEY (rowid=?)"), "{delete:#?}");
        let of_table = "SEARCH idempotency_outbox USING INTEGER PRIMARY KEY (rowid=?)";
        assert!(delete.iter().any(|line| line == of_table), "{delete:#?}");
    }
}

// M36, M38: also where the table is so short that a server would rather read all of it, and so lock all of it.
#[tokio::test]
async fn on_mariadb_by_the_primary_key() {
    let lab = MariaDbLab::new().await;
    for rows in [0, 20, 64 * ROWS] {
        lab.run(format!(
            "INSERT INTO idempotency_outbox
                (bucket, id, destination, aggregatetype, type, source, payload, enqueued_at)
             SELECT seq % 64, UUID(), 'd', 't', 't', 's', REPEAT('x', 300), UTC_TIMESTAMP(6) FROM seq_1_to_{}",
            rows.max(1)
        ))
        .await;
        lab.run("ANALYZE TABLE idempotency_outbox".to_owned()).await;
        let [poll, delete] = plans(&lab).await;
        assert_eq!(poll.iter().filter(|line| *line == "o range PRIMARY").count(), 64, "{poll:#?}");
        assert_eq!(delete[..2], ["a ALL ", "o eq_ref PRIMARY"], "{delete:#?}");
        assert!(delete[2].starts_with("f eq_ref PRIMARY"), "{delete:#?}");
    }
}
