//! How SQLite goes about a purge: for the tests of its texts (S31).

use sqlx::{Row, SqlSafeStr, SqliteConnection, SqliteExecutor};

use super::sql::MIGRATIONS;
use crate::db::sql::explained;

/// Fails unless the rows are found by this index, up to a bound.
pub(super) async fn assert_searches(text: &'static str, parameters: usize, index: &str) {
    let mut connection = <SqliteConnection as sqlx::Connection>::connect("sqlite::memory:").await.unwrap();
    for migration in MIGRATIONS {
        run(&mut connection, migration).await;
    }
    let mut query = sqlx::query(explained("EXPLAIN QUERY PLAN", &text.into_sql_str()));
    for _ in 0..parameters {
        query = query.bind(1_i64);
    }
    let steps: Vec<String> =
        query.fetch_all(&mut connection).await.unwrap().iter().map(|row| row.get("detail")).collect();
    assert!(steps.iter().any(|step| step.contains(&format!("INDEX {index} (")) && step.contains("<?)")), "{steps:?}");
    assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{steps:?}");
    assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
}

async fn run(connection: impl SqliteExecutor<'_>, text: &'static str) {
    sqlx::raw_sql(text).execute(connection).await.unwrap();
}
