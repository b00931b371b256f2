//! The texts.

use crate::db::sqlite::sql::clock;

/// The row that the statement is about. Parameters: 1 consumer, 2 source, 3 id.
macro_rules! row {
    () => {
        "consumer = ?1 AND source = ?2 AND id = ?3"
    };
}

/// Makes marks where there are none, and tells of which. Parameters: 1 consumer, 2 retention, 3 messages as JSON.
pub(super) const ACCEPT: &str = concat!(
    "INSERT INTO idempotency_inbox (consumer, source, id, token, digest, accepted_at, expires_at) \
     SELECT ?1, unhex(value ->> 0), unhex(value ->> 1), unhex(value ->> 2), unhex(value ->> 3), ",
    clock!(),
    ", ",
    clock!(),
    " + ?2 FROM json_each(?3) WHERE true ON CONFLICT (consumer, source, id) DO NOTHING RETURNING token"
);

/// The marks that are there, by the number of the message. Parameters: 1 consumer, 2 messages as JSON.
pub(super) const LOOK: &str = "SELECT asked.key AS n, held.digest FROM json_each(?2) AS asked CROSS JOIN idempotency_inbox AS held \
     WHERE held.consumer = ?1 AND held.source = unhex(asked.value ->> 0) AND held.id = unhex(asked.value ->> 1)";

/// A mark that is committed. Parameters: 1 consumer, 2 source, 3 id.
pub(super) const PEEK: &str = concat!("SELECT digest FROM idempotency_inbox WHERE ", row!());

/// Parameters: 1 consumer, 2 source, 3 id, 4 token.
pub(super) const RETRACT: &str = concat!("DELETE FROM idempotency_inbox WHERE ", row!(), " AND token = ?4");

/// Parameters: 1 consumer, 2 source, 3 id, 4 token, 5 retention.
pub(super) const CONFIRM: &str =
    concat!("UPDATE idempotency_inbox SET expires_at = ", clock!(), " + ?5 WHERE ", row!(), " AND token = ?4");

/// Parameters: 1 consumer, 2 source, 3 id.
pub(super) const FAILURES: &str = concat!("SELECT failures FROM idempotency_inbox_failures WHERE ", row!());

/// Parameters: 1 consumer, 2 source, 3 id, 4 retention.
pub(super) const COUNT_FAILURE: &str = concat!(
    "INSERT INTO idempotency_inbox_failures (consumer, source, id, failures, expires_at) VALUES (?1, ?2, ?3, 1, ",
    clock!(),
    " + ?4) ON CONFLICT (consumer, source, id) DO UPDATE SET failures = failures + 1, expires_at = excluded.expires_at"
);

/// Parameters: 1 consumer, 2 source, 3 id.
pub(super) const FORGET_FAILURES: &str = concat!("DELETE FROM idempotency_inbox_failures WHERE ", row!());

/// Returns how long each had been expired, in microseconds. Parameter: 1 limit.
macro_rules! purge {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE rowid IN (SELECT rowid FROM ",
            $table,
            " WHERE expires_at <= ",
            clock!(),
            " ORDER BY expires_at LIMIT ?1) RETURNING ",
            clock!(),
            " - expires_at"
        )
    };
}

pub(super) const PURGE: &str = purge!("idempotency_inbox");
pub(super) const PURGE_FAILURES: &str = purge!("idempotency_inbox_failures");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sqlite::plans::assert_searches;

    // S31, case O02: a purge reads what has expired and no more.
    #[tokio::test]
    async fn a_purge_goes_by_the_time_index() {
        assert_searches(PURGE, 1, "idempotency_inbox_expires_at").await;
        assert_searches(PURGE_FAILURES, 1, "idempotency_inbox_failures_expires_at").await;
    }
}
