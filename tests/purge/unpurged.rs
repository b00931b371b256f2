//! What a process is told that starts where nobody purges. Counters are a thread's own, so these tests have one.

use std::time::SystemTime;

use idempotency::inbox::{Inbox, InboxDialect};

use crate::lab::{Lab, MariaDbLab, PostgresLab, SqliteLab, TABLES};
use crate::support::counters::Counters;

// O01: whoever starts on a database that nobody purges is told, by a row of any table.
async fn rows_that_nobody_purges_are_told_of<L: Lab<DB: InboxDialect>>() {
    const DAY: f64 = 86_400.0;
    let lab = L::new(4).await;
    let warnings = async || {
        let counters = Counters::default();
        let _guard = counters.install();
        Inbox::new(lab.pool().clone(), "c").await.unwrap().migrate().await.unwrap();
        counters.of("unpurged")
    };
    assert_eq!(warnings().await, 0, "nothing is there");
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    // A lease that was given back expired at the beginning of time.
    lab.fill_table("idempotency_leases", 1..2, since_1970).await;
    for (table, _) in &TABLES[..3] {
        for (expired_for, expected) in [(-DAY, 0), (DAY / 2.0, 0), (DAY * 1.1, 1)] {
            lab.fill_table(table, 0..1, expired_for).await;
            assert_eq!(warnings().await, expected, "{table}, {expired_for}");
            lab.run(format!("DELETE FROM {table} WHERE expires_at > {}", L::at(-DAY * 2.0))).await;
        }
    }
    assert_eq!(lab.rows().await, [0, 1, 0, 0, 0]);
}

#[tokio::test]
async fn on_postgres_rows_that_nobody_purges_are_warned_about() {
    rows_that_nobody_purges_are_told_of::<PostgresLab>().await;
}

#[tokio::test]
async fn on_mariadb_rows_that_nobody_purges_are_warned_about() {
    rows_that_nobody_purges_are_told_of::<MariaDbLab>().await;
}

#[tokio::test]
async fn on_sqlite_rows_that_nobody_purges_are_warned_about() {
    rows_that_nobody_purges_are_told_of::<SqliteLab>().await;
}
