//! How the server goes about it, for tests.

use sqlx::Row;

use super::{Bound, PostgresQueue};
use crate::db::outbox::columns::for_plans;
use crate::db::sql::explained;

pub(super) async fn plans(queue: &PostgresQueue) -> Result<[Vec<String>; 2], sqlx::Error> {
    let (from, acked) = for_plans();
    let texts = &queue.rows.texts;
    let poll = PostgresQueue::polling(&explained("EXPLAIN", &texts.poll), &from);
    let delete = PostgresQueue::deleting(&explained("EXPLAIN", &texts.delete), &acked);
    Ok([lines(queue, poll).await?, lines(queue, delete).await?])
}

async fn lines(queue: &PostgresQueue, query: Bound<'_>) -> Result<Vec<String>, sqlx::Error> {
    query.fetch_all(&queue.pool).await?.iter().map(|row| row.try_get(0)).collect()
}
