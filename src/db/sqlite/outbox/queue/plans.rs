//! How the server goes about it, for tests.

use sqlx::{Row, SqlSafeStr};

use super::{Bound, SqliteQueue, polling, sql, triples};
use crate::db::outbox::columns::for_plans;
use crate::db::sql::explained;

pub(super) async fn plans(queue: &SqliteQueue) -> Result<[Vec<String>; 2], sqlx::Error> {
    let (from, acked) = for_plans();
    let poll = polling(explained("EXPLAIN QUERY PLAN", &super::ranges(from.len())), &from);
    let delete = sqlx::query(explained("EXPLAIN QUERY PLAN", &sql::DELETE.into_sql_str()))
        .bind(triples(acked.iter().map(|acked| (acked.place, acked.id))));
    Ok([lines(queue, poll).await?, lines(queue, delete).await?])
}

async fn lines(queue: &SqliteQueue, query: Bound<'_>) -> Result<Vec<String>, sqlx::Error> {
    query.fetch_all(&queue.desk).await?.iter().map(|row| row.try_get("detail")).collect()
}
