//! A purge reads what has expired and no more, however many rows live (S9, S31; case O02).

use idempotency::purge::Purger;
use idempotency::testing::purge_texts;
use sqlx::{AssertSqlSafe, Row};

use crate::lab::{Lab, MariaDbLab, PostgresLab, TABLES};

const LIVE: u32 = 20_000;
const EXPIRED: u32 = 40;

async fn filled<L: Lab>() -> (L, Purger) {
    let lab = L::new(1).await;
    lab.fill(0..EXPIRED, 1.0).await;
    lab.fill(EXPIRED..LIVE, -3600.0).await;
    // Small batches: for a hundred rows out of so few, reading them all would be right.
    let purger = lab.purger().await.batch(10);
    (lab, purger)
}

// Which index reads how many entries is counted by the server itself: an EXPLAIN of a copied text would prove another text.
#[tokio::test]
async fn on_postgres_the_time_index_is_read_up_to_now() {
    let (lab, purger) = filled::<PostgresLab>().await;
    for (table, _) in TABLES {
        lab.run(format!("ANALYZE {table}")).await;
    }
    let read = async |what: &str, table: &str| {
        lab.run("SELECT pg_stat_force_next_flush()".into()).await;
        lab.run("SELECT pg_stat_clear_snapshot()".into()).await;
        let (view, name) = if what == "seq_tup_read" { ("tables", "relname") } else { ("indexes", "indexrelname") };
        let name = format!("{name} = '{table}{}'", if view == "tables" { "" } else { "_expires_at" });
        let name = if table.ends_with("dead") { name.replace("expires_at", "died_at") } else { name };
        let sql = format!("SELECT {what} FROM pg_stat_user_{view} WHERE {name} AND schemaname = current_schema()");
        lab.count(sql).await
    };
    let mut before = Vec::new();
    for (table, _) in TABLES {
        before.push((read("seq_tup_read", table).await, read("idx_tup_read", table).await));
    }
    // Often: the sixth time a prepared statement gets a plan for any parameters.
    for _ in 0..8 {
        purger.purge_once().await.unwrap();
    }
    for ((table, _), (scanned, indexed)) in TABLES.iter().zip(before) {
        assert_eq!(read("seq_tup_read", table).await - scanned, 0, "{table} was scanned");
        let read = read("idx_tup_read", table).await - indexed;
        // Once each, and what is deleted may be met again until it is vacuumed.
        assert!((i64::from(EXPIRED)..i64::from(EXPIRED) * 9).contains(&read), "{table}: {read} entries");
    }
}

#[tokio::test]
async fn on_mariadb_rows_are_read_up_to_now() {
    let (lab, purger) = filled::<MariaDbLab>().await;
    let read = async || -> i64 {
        let rows: Vec<(String, String)> =
            sqlx::query_as("SHOW SESSION STATUS LIKE 'Handler_read%'").fetch_all(lab.pool()).await.unwrap();
        rows.iter().filter(|(name, _)| !name.ends_with("_key")).map(|(_, value)| value.parse::<i64>().unwrap()).sum()
    };
    let before = read().await;
    purger.purge_once().await.unwrap();
    let read = read().await - before;
    assert!(read < i64::from(EXPIRED) * 5 * 5, "{read} rows were read");
    assert_eq!(lab.rows().await, [i64::from(LIVE - EXPIRED); 5]);
}

/// Which index a purge must go by.
fn index(table: &str, column: &str) -> String {
    format!("{table}_{column}")
}

// S9, S31; case O02: each purge's own text goes by the index on time, up to a bound.
#[tokio::test]
async fn on_postgres_every_purge_is_planned_on_the_time_index() {
    let (lab, _) = filled::<PostgresLab>().await;
    let texts = purge_texts::postgres();
    assert_eq!(texts.len(), TABLES.len());
    for ((table, column), text) in TABLES.into_iter().zip(texts) {
        lab.run(format!("ANALYZE {table}")).await;
        let text = text.replace("$1", "10").replace("$2", "60000000");
        let plan = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {text}"))).fetch_all(lab.pool()).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        let index = index(table, column);
        assert!(plan.contains(&format!("Index Scan using {index} on {table}")), "{table}: {plan}");
        assert!(plan.contains(&format!("Index Cond: ({column} <= ")), "{table}: {plan}");
        assert!(!plan.contains("Seq Scan"), "{table}: {plan}");
    }
}

#[tokio::test]
async fn on_mariadb_every_purge_is_planned_on_the_time_index() {
    let (lab, _) = filled::<MariaDbLab>().await;
    let texts = purge_texts::mysql();
    assert_eq!(texts.len(), TABLES.len());
    for ((table, column), text) in TABLES.into_iter().zip(texts) {
        lab.run(format!("ANALYZE TABLE {table}")).await;
        let text = text.replace("LIMIT ?", "LIMIT 10").replace('?', "60000000");
        let plan = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {text}"))).fetch_all(lab.pool()).await.unwrap();
        assert_eq!(plan.len(), 1, "{table}");
        let said = |column: &str| plan[0].try_get::<Option<String>, _>(column).unwrap().unwrap_or_default();
        assert_eq!((said("type").as_str(), said("key")), ("range", index(table, column)), "{table}: {}", said("Extra"));
        assert!(!said("Extra").contains("filesort"), "{table}");
    }
}
