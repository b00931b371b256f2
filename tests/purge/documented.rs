//! What the guide gives to a scheduler of the server's own (S31).

use idempotency::testing::purge_texts;

use crate::lab::{DEAD, Lab, PostgresLab, TABLES};

const GUIDE: &str = include_str!("../../docs/operations.md");
const MONTH: f64 = 30.0 * 24.0 * 3600.0;

/// The statements of the guide, one a table.
fn statements() -> Vec<&'static str> {
    GUIDE.split("cron.schedule(").skip(1).map(|line| line.split("$$").nth(1).unwrap()).collect()
}

// S31: the guide's statements delete what has expired, in every table, and nothing that lives.
#[tokio::test]
async fn what_the_guide_gives_to_pg_cron_purges_every_table() {
    let statements = statements();
    assert_eq!(statements.len(), purge_texts::postgres().len());
    let lab = PostgresLab::<false>::new(2).await;
    // Dead letters are kept for a month there, and for less in this lab.
    lab.fill(0..20, MONTH - DEAD.as_secs_f64() + 1.0).await;
    lab.fill(20..30, -3600.0).await;
    for ((table, _), statement) in TABLES.into_iter().zip(statements) {
        assert!(statement.contains(&format!("DELETE FROM {table} ")), "{statement}");
        assert_eq!(lab.run(statement.to_owned()).await, 20, "{table}");
    }
    assert_eq!(lab.rows().await, [10; 5]);
}
