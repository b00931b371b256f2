//! The texts.

use crate::db::lease::texts;

/// The row that the statement is about. Parameters: 1 consumer, 2 source, 3 id.
macro_rules! row {
    () => {
        "consumer = $1 AND source = $2 AND id = $3"
    };
}

/// Whether a transaction keeps one snapshot: what others commit meanwhile is then an error of an INSERT and not a row.
/// It stands before everything else, so that such a transaction is told so and nothing is tried.
macro_rules! level {
    () => {
        "WITH level AS MATERIALIZED (\
            SELECT current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') AS strict)"
    };
}

/// Bounds the transaction where it has no bound yet, or it is one of ours.
macro_rules! bound {
    ($idle:literal, $ours:literal) => {
        concat!(
            "CASE WHEN ",
            $idle,
            "::text IS NOT NULL AND (",
            $ours,
            " OR current_setting('idle_in_transaction_session_timeout') = '0') \
             THEN set_config('idle_in_transaction_session_timeout', ",
            $idle,
            ", true) END"
        )
    };
}

/// Inserts under the lock of the part `k`. Parameters: 5 token, 6 digest, 7 retention, 8 idle timeout, 9 whether the
/// transaction is ours.
macro_rules! insert {
    () => {
        concat!(
            "accepted AS (INSERT INTO {schema}idempotency_inbox AS held \
                (consumer, source, id, token, claim_xid, digest, accepted_at, expires_at) \
             SELECT $1, $2, $3, $5, pg_current_xact_id(), $6, moment.at, moment.at + $7 * interval '1 microsecond' \
             FROM k CROSS JOIN LATERAL (SELECT clock_timestamp() AS at OFFSET 0) AS moment WHERE k.got \
             ON CONFLICT (consumer, source, id) DO NOTHING RETURNING ctid::text AS place, ",
            bound!("$8", "$9"),
            ")"
        )
    };
}

/// Makes a mark, in one statement under READ COMMITTED. With a mark there, no lock is tried and nothing is written. Who has
/// the lock and inserts nothing has met a mark that was committed after the statement's snapshot: the caller asks again.
/// Parameters: 1 consumer, 2 source, 3 id, 4 lock, then those of the insertion.
const ACCEPT: &str = concat!(
    level!(),
    ", seen AS MATERIALIZED (SELECT digest FROM {schema}idempotency_inbox WHERE NOT (SELECT strict FROM level) AND ",
    row!(),
    "), k AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4) AS got FROM level \
        WHERE NOT strict AND NOT EXISTS (SELECT FROM seen)), ",
    insert!(),
    " SELECT strict, EXISTS (SELECT FROM seen) AS seen, (SELECT digest FROM seen) AS digest, \
        (SELECT got FROM k) AS got, (SELECT place FROM accepted) AS accepted FROM level"
);

/// The same for a transaction with one snapshot. The lock and the INSERT come first, and the row is read only where nothing
/// was inserted: a row that is read first costs a predicate lock, and deliveries of different messages would fail each
/// other. A mark that was committed after the snapshot is 40001.
const ACCEPT_STRICT: &str = concat!(
    "WITH k AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4) AS got), ",
    insert!(),
    ", seen AS MATERIALIZED (SELECT digest FROM {schema}idempotency_inbox \
        WHERE NOT EXISTS (SELECT FROM accepted) AND ",
    row!(),
    ") SELECT false AS strict, EXISTS (SELECT FROM seen) AS seen, (SELECT digest FROM seen) AS digest, \
        (SELECT got FROM k) AS got, (SELECT place FROM accepted) AS accepted"
);

/// The messages of a batch, with their numbers. Parameters: 2 sources, 3 ids, 4 locks, 5 tokens, 6 digests.
macro_rules! asked {
    () => {
        "asked AS MATERIALIZED (SELECT * FROM unnest($2::bytea[], $3::bytea[], $4::int8[], $5::bytea[], $6::bytea[]) \
            WITH ORDINALITY AS asked (source, id, key, token, digest, n))"
    };
}

/// Those of the batch that are there under a condition.
macro_rules! seen_all {
    ($condition:literal) => {
        concat!(
            "seen AS MATERIALIZED (SELECT asked.n, held.digest FROM asked CROSS JOIN LATERAL (\
                SELECT digest FROM {schema}idempotency_inbox AS held \
                WHERE held.consumer = $1 AND held.source = asked.source AND held.id = asked.id OFFSET 0) AS held \
             WHERE ",
            $condition,
            ")"
        )
    };
}

macro_rules! insert_all {
    () => {
        concat!(
            "accepted AS (INSERT INTO {schema}idempotency_inbox AS held \
                (consumer, source, id, token, claim_xid, digest, accepted_at, expires_at) \
             SELECT $1, asked.source, asked.id, asked.token, pg_current_xact_id(), asked.digest, moment.at, \
                moment.at + $7 * interval '1 microsecond' \
             FROM asked JOIN k ON k.n = asked.n CROSS JOIN (SELECT clock_timestamp() AS at OFFSET 0) AS moment WHERE k.got \
             ON CONFLICT (consumer, source, id) DO NOTHING RETURNING token, ctid::text AS place, ",
            bound!("$8", "$9"),
            ")"
        )
    };
}

/// One row for each message of the batch, in their order.
macro_rules! verdicts {
    () => {
        " SELECT seen.n IS NOT NULL AS seen, seen.digest, k.got, accepted.place AS accepted FROM asked \
             LEFT JOIN seen ON seen.n = asked.n LEFT JOIN k ON k.n = asked.n \
             LEFT JOIN accepted ON accepted.token = asked.token ORDER BY asked.n"
    };
}

/// As [`ACCEPT`], for a batch of distinct messages; no row for a transaction with one snapshot.
/// Parameters: 1 consumer, those of the batch, 7 retention, 8 idle timeout, 9 whether the transaction is ours.
const ACCEPT_ALL: &str = concat!(
    level!(),
    ", ",
    // Nothing is asked for in a strict transaction.
    "asked AS MATERIALIZED (SELECT asked.* FROM level CROSS JOIN \
        unnest($2::bytea[], $3::bytea[], $4::int8[], $5::bytea[], $6::bytea[]) \
            WITH ORDINALITY AS asked (source, id, key, token, digest, n) WHERE NOT strict), ",
    seen_all!("true"),
    ", k AS MATERIALIZED (SELECT n, pg_try_advisory_xact_lock(key) AS got FROM asked \
        WHERE NOT EXISTS (SELECT FROM seen WHERE seen.n = asked.n)), ",
    insert_all!(),
    verdicts!()
);

/// As [`ACCEPT_STRICT`].
const ACCEPT_ALL_STRICT: &str = concat!(
    "WITH ",
    asked!(),
    ", k AS MATERIALIZED (SELECT n, pg_try_advisory_xact_lock(key) AS got FROM asked), ",
    insert_all!(),
    ", ",
    seen_all!("NOT EXISTS (SELECT FROM accepted WHERE accepted.token = asked.token)"),
    verdicts!()
);

/// A mark that is committed. Parameters: 1 consumer, 2 source, 3 id.
const PEEK: &str = concat!("SELECT digest FROM {schema}idempotency_inbox WHERE ", row!());

/// Around a statement that may fail for a snapshot, in a transaction of the caller's.
pub(super) const SAVEPOINT: &str = "SAVEPOINT idempotency_inbox";
pub(super) const RELEASE: &str = "RELEASE SAVEPOINT idempotency_inbox";
pub(super) const UNDO: &str = "ROLLBACK TO SAVEPOINT idempotency_inbox; RELEASE SAVEPOINT idempotency_inbox";

/// Parameters: 1 consumer, 2 source, 3 id, 4 token.
const RETRACT: &str = concat!("DELETE FROM {schema}idempotency_inbox WHERE ", row!(), " AND token = $4");

/// Hits the mark of this very transaction, or nothing: a handler's own COMMIT or ROLLBACK shows (M4).
/// Parameters: 1 consumer, 2 source, 3 id, 4 token, 5 retention.
const CONFIRM: &str = concat!(
    "UPDATE {schema}idempotency_inbox SET expires_at = clock_timestamp() + $5 * interval '1 microsecond' WHERE ",
    row!(),
    " AND token = $4 AND claim_xid = pg_current_xact_id()"
);

/// The same at the place where the mark was written. Parameters: as above, 6 place.
const CONFIRM_AT: &str = concat!(
    "UPDATE {schema}idempotency_inbox SET expires_at = clock_timestamp() + $5 * interval '1 microsecond' \
     WHERE ctid = $6::text::tid AND ",
    row!(),
    " AND token = $4 AND claim_xid = pg_current_xact_id()"
);

/// Parameters: 1 consumer, 2 source, 3 id.
const FAILURES: &str = concat!("SELECT failures FROM {schema}idempotency_inbox_failures WHERE ", row!());

/// Parameters: 1 consumer, 2 source, 3 id, 4 retention.
const COUNT_FAILURE: &str = "INSERT INTO {schema}idempotency_inbox_failures AS held \
        (consumer, source, id, failures, expires_at) \
     VALUES ($1, $2, $3, 1, clock_timestamp() + $4 * interval '1 microsecond') \
     ON CONFLICT (consumer, source, id) DO UPDATE SET failures = held.failures + 1, expires_at = excluded.expires_at";

/// Parameters: 1 consumer, 2 source, 3 id.
const FORGET_FAILURES: &str = concat!("DELETE FROM {schema}idempotency_inbox_failures WHERE ", row!());

/// Deletes expired rows, steps over those that another purge deletes. Parameter: 1 limit.
macro_rules! purge {
    ($table:literal) => {
        concat!(
            "DELETE FROM {schema}",
            $table,
            " AS expired USING (SELECT consumer, source, id FROM {schema}",
            $table,
            " WHERE expires_at <= (SELECT clock_timestamp()) ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED) AS batch \
             WHERE expired.consumer = batch.consumer AND expired.source = batch.source AND expired.id = batch.id \
                AND expired.expires_at <= clock_timestamp() \
             RETURNING (extract(epoch FROM clock_timestamp() - expired.expires_at) * 1000000)::int8"
        )
    };
}

pub(in crate::db::postgres) const PURGE: &str = purge!("idempotency_inbox");
pub(in crate::db::postgres) const PURGE_FAILURES: &str = purge!("idempotency_inbox_failures");

texts! {
    accept: ACCEPT,
    accept_strict: ACCEPT_STRICT,
    accept_all: ACCEPT_ALL,
    accept_all_strict: ACCEPT_ALL_STRICT,
    peek: PEEK,
    retract: RETRACT,
    confirm: CONFIRM,
    confirm_at: CONFIRM_AT,
    failures: FAILURES,
    count_failure: COUNT_FAILURE,
    forget_failures: FORGET_FAILURES,
    purge: PURGE,
    purge_failures: PURGE_FAILURES,
}

#[cfg(test)]
mod tests {
    use super::*;

    // M3, M4: who owns a mark is told by a lock that is tried, and by the token and transaction of its row.
    #[test]
    fn no_text_waits_for_a_rival() {
        for (name, text) in ALL {
            assert!(!text.contains("pg_advisory_xact_lock("), "{name} waits");
            assert_eq!(name.starts_with("accept"), text.contains("pg_try_advisory_xact_lock("), "{name}");
        }
        for text in [CONFIRM, CONFIRM_AT] {
            assert!(text.contains("token = $4 AND claim_xid = pg_current_xact_id()"));
        }
    }
}
