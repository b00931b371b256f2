//! How the server goes about it, for tests.

use sqlx::Row;

use super::{Bound, MySqlQueue, query, triples};
use crate::db::outbox::columns::for_plans;
use crate::db::sql::explained;

pub(super) async fn plans(queue: &MySqlQueue) -> Result<[Vec<String>; 2], sqlx::Error> {
    let (from, acked) = for_plans();
    let texts = &queue.rows.texts;
    let poll = super::polling(&explained("EXPLAIN", &super::ranges(texts, from.len())), &from);
    let delete =
        query(&explained("EXPLAIN", &texts.delete)).bind(triples(acked.iter().map(|acked| (acked.place, acked.id))));
    Ok([lines(queue, poll).await?, lines(queue, delete).await?])
}

/// Of each step the table, how it is read, and by which index.
async fn lines(queue: &MySqlQueue, query: Bound) -> Result<Vec<String>, sqlx::Error> {
    let part = |row: &sqlx::mysql::MySqlRow, column: &str| {
        Ok::<_, sqlx::Error>(row.try_get_unchecked::<Option<String>, _>(column)?.unwrap_or_default())
    };
    let rows = queue.fetch(query).await?;
    rows.iter().map(|row| Ok([part(row, "table")?, part(row, "type")?, part(row, "key")?].join(" "))).collect()
}
