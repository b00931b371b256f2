//! How the server goes about it, for tests.

use sqlx::{Row, SqlStr};

use super::PostgresQueue;
use crate::db::outbox::columns::for_plans;
use crate::db::sql::{explained, uncompiled};

pub(super) async fn plans(queue: &PostgresQueue) -> Result<[Vec<String>; 2], sqlx::Error> {
    let (from, acked) = for_plans();
    let texts = &queue.rows.texts;
    let poll = lines(queue, PostgresQueue::polling(&texts.poll, &from)).await?;
    Ok([poll, lines(queue, PostgresQueue::deleting(&texts.delete, &acked)).await?])
}

async fn lines(queue: &PostgresQueue, text: SqlStr) -> Result<Vec<String>, sqlx::Error> {
    let plan = sqlx::raw_sql(uncompiled(&explained("EXPLAIN", &text)));
    plan.fetch_all(&queue.pool).await?.iter().map(|row| row.try_get(0)).collect()
}
