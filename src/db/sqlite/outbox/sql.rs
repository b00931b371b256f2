//! The texts.

use crate::db::sqlite::sql::clock;

/// The columns of an event in every table that holds some.
macro_rules! whole {
    () => {
        "bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, \
         traceparent, tracestate, enqueued_at, redrives"
    };
}

/// The columns of an event as they are read, of a table under this name; `$redrives` is added to its redrives.
macro_rules! read {
    ($from:literal, $redrives:expr) => {
        concat!(
            $from,
            ".bucket, ",
            $from,
            ".seq, ",
            $from,
            ".id, ",
            $from,
            ".destination, ",
            $from,
            ".aggregatetype, ",
            $from,
            ".aggregateid, ",
            $from,
            ".type, ",
            $from,
            ".source, ",
            $from,
            ".content_type, ",
            $from,
            ".payload, ",
            $from,
            ".headers, ",
            $from,
            ".traceparent, ",
            $from,
            ".tracestate, ",
            $from,
            ".enqueued_at AS occurred, ",
            $from,
            ".redrives + ",
            $redrives,
            " AS redrives"
        )
    };
}

/// A pending event, with the redrives of its failures.
macro_rules! pending {
    () => {
        read!(
            "o",
            "coalesce((SELECT f.redrives FROM idempotency_outbox_failing AS f \
             WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id), 0)"
        )
    };
}

/// `{parts}`: one [`ROW`] an event.
pub(super) const INSERT: &str = "INSERT INTO idempotency_outbox (bucket, id, destination, aggregatetype, aggregateid, \
    type, source, content_type, payload, headers, traceparent, tracestate, enqueued_at) VALUES {parts}";
/// Parameters: bucket, id, destination, topic, key, type, source, content type, payload, headers, traceparent, tracestate.
pub(super) const ROW: &str = concat!("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ", clock!(), ")");

/// `{parts}`: one [`DEFERRED_ROW`] an event.
pub(super) const DEFER: &str = "INSERT INTO idempotency_outbox_deferred (bucket, id, destination, aggregatetype, \
    aggregateid, type, source, content_type, payload, headers, traceparent, tracestate, due_at, enqueued_at) \
    VALUES {parts}";
/// Parameters: as [`ROW`], when it is due.
pub(super) const DEFERRED_ROW: &str = concat!("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ", clock!(), ")");

/// No row, of a table that must be there.
pub(super) const NOTHING: &str = "SELECT 1 FROM idempotency_outbox LIMIT 0";

/// Parameter: 1 limit.
pub(super) const FIRST: &str =
    concat!("SELECT ", pending!(), " FROM idempotency_outbox AS o ORDER BY o.bucket, o.seq LIMIT ?1");

/// `{parts}`: one [`RANGE`] a bucket.
pub(super) const POLL: &str = "{parts}";
/// Parameters: bucket, number, limit.
pub(super) const RANGE: &str = concat!(
    "SELECT * FROM (SELECT ",
    pending!(),
    " FROM idempotency_outbox AS o WHERE o.bucket = ? AND o.seq > ? ORDER BY o.seq LIMIT ?)"
);

/// Parameters: bucket, number, number.
pub(super) const NUMBERS: &str =
    "SELECT o.bucket, o.seq FROM idempotency_outbox AS o WHERE o.bucket = ? AND o.seq > ? AND o.seq <= ?";

/// The last number of the table.
pub(super) const NEWEST: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'idempotency_outbox'";

/// The rows of a JSON array of `[bucket, number]`. Parameter: 1 the array.
pub(super) const READ_ALL: &str = concat!(
    "SELECT ",
    pending!(),
    " FROM json_each(?1) AS a CROSS JOIN idempotency_outbox AS o WHERE o.seq = a.value ->> 1 AND o.bucket = a.value ->> 0"
);

/// Parameters: 1 bucket, 2 first number, 3 destination, 4 key, 5 limit.
pub(super) const LANE: &str = concat!(
    "SELECT ",
    pending!(),
    " FROM idempotency_outbox AS o WHERE o.bucket = ?1 AND o.seq >= ?2 AND o.destination = ?3 AND o.aggregateid = ?4 \
     ORDER BY o.seq LIMIT ?5"
);

/// Parameters: 1 bucket, 2 number.
pub(super) const READ: &str =
    concat!("SELECT ", pending!(), " FROM idempotency_outbox AS o WHERE o.seq = ?2 AND o.bucket = ?1");

/// The rows of a JSON array of `[bucket, number, id]`, each by its primary key. Parameter: 1 the array.
pub(super) const DELETE: &str = "DELETE FROM idempotency_outbox WHERE seq IN (\
    SELECT o.seq FROM json_each(?1) AS a CROSS JOIN idempotency_outbox AS o \
    WHERE o.seq = a.value ->> 1 AND o.bucket = a.value ->> 0 AND o.id = a.value ->> 2)";
/// The same for what was recorded of their failures.
pub(super) const DELETE_FAILING: &str = "DELETE FROM idempotency_outbox_failing WHERE rowid IN (\
    SELECT f.rowid FROM json_each(?1) AS a CROSS JOIN idempotency_outbox_failing AS f \
    WHERE f.bucket = a.value ->> 0 AND f.seq = a.value ->> 1 AND f.id = a.value ->> 2)";

/// Parameter: 1 a JSON array of buckets.
pub(super) const FAILING: &str = concat!(
    "SELECT bucket, seq, id, destination, aggregateid, attempts, blocked, redrives, retry_at - ",
    clock!(),
    " AS retry_in FROM idempotency_outbox_failing AS f WHERE bucket IN (SELECT value FROM json_each(?1)) \
     AND EXISTS (SELECT 1 FROM idempotency_outbox AS o WHERE o.seq = f.seq AND o.bucket = f.bucket AND o.id = f.id) \
     ORDER BY bucket, seq"
);

/// Parameters: 1 bucket, 2 number, 3 id, 4 how many attempts to add, 5 blocked, 6 wait, 7 error.
pub(super) const RECORD: &str = concat!(
    "INSERT INTO idempotency_outbox_failing AS f \
        (bucket, seq, id, destination, aggregateid, attempts, blocked, failing_since, retry_at, error) \
     SELECT bucket, seq, id, destination, aggregateid, max(?4, 0), ?5, ",
    clock!(),
    ", ",
    clock!(),
    " + ?6, ?7 FROM idempotency_outbox WHERE seq = ?2 AND bucket = ?1 AND id = ?3 \
     ON CONFLICT (bucket, seq) DO UPDATE SET id = excluded.id, destination = excluded.destination, \
        aggregateid = excluded.aggregateid, blocked = excluded.blocked, retry_at = excluded.retry_at, \
        error = excluded.error, attempts = max(iif(f.id = excluded.id, f.attempts, 0) + ?4, 0), \
        failing_since = iif(f.id = excluded.id, f.failing_since, excluded.failing_since), \
        redrives = iif(f.id = excluded.id, f.redrives, 0) \
     RETURNING attempts"
);

/// A letter with this id that is there is an earlier one of the same event.
/// Parameters: 1 bucket, 2 number, 3 id, 4 attempts, 5 error.
pub(super) const BURY: &str = concat!(
    "INSERT OR REPLACE INTO idempotency_outbox_dead (seq, attempts, error, died_at, ",
    whole!(),
    ") SELECT o.seq, ?4, ?5, ",
    clock!(),
    ", o.bucket, o.id, o.destination, o.aggregatetype, o.aggregateid, o.type, o.source, o.content_type, o.payload, \
     o.headers, o.traceparent, o.tracestate, o.enqueued_at, o.redrives + coalesce((\
        SELECT f.redrives FROM idempotency_outbox_failing AS f WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id\
     ), 0) FROM idempotency_outbox AS o WHERE o.seq = ?2 AND o.bucket = ?1 AND o.id = ?3"
);

/// Parameter: 1 limit.
pub(super) const DUE: &str =
    concat!("SELECT n FROM idempotency_outbox_deferred WHERE due_at <= ", clock!(), " ORDER BY due_at, n LIMIT ?1");
/// Parameter: 1 a JSON array of numbers.
pub(super) const PROMOTE: &str = concat!(
    "INSERT INTO idempotency_outbox (",
    whole!(),
    ") SELECT ",
    whole!(),
    " FROM idempotency_outbox_deferred WHERE n IN (SELECT value FROM json_each(?1)) ORDER BY due_at, n \
     ON CONFLICT (id) DO NOTHING"
);
pub(super) const DELETE_DEFERRED: &str =
    "DELETE FROM idempotency_outbox_deferred WHERE n IN (SELECT value FROM json_each(?1))";

pub(super) const PAUSED: &str = "SELECT destination, has_key, aggregateid FROM idempotency_outbox_paused";
/// Parameters: 1 destination, 2 whether there is a key, 3 key.
pub(super) const PAUSE: &str = "INSERT INTO idempotency_outbox_paused (destination, has_key, aggregateid) \
    VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
pub(super) const RESUME: &str =
    "DELETE FROM idempotency_outbox_paused WHERE destination = ?1 AND has_key = ?2 AND aggregateid = ?3";

/// Counting no further than the limit. Parameter: 1 limit.
macro_rules! count {
    ($from:literal) => {
        concat!("(SELECT count(*) FROM (SELECT 1 FROM ", $from, " LIMIT ?1))")
    };
}

/// Parameter: 1 limit.
pub(super) const STATS: &str = concat!(
    "SELECT ",
    count!("idempotency_outbox"),
    " AS pending, (SELECT ",
    clock!(),
    " - enqueued_at FROM idempotency_outbox ORDER BY seq LIMIT 1) AS oldest_age, ",
    count!("idempotency_outbox_failing WHERE blocked = 0"),
    " AS failing, ",
    count!("idempotency_outbox_failing WHERE blocked = 1"),
    " AS blocked, ",
    count!("idempotency_outbox_deferred"),
    " AS deferred, ",
    count!("idempotency_outbox_dead"),
    " AS dead"
);

/// Parameter: 1 limit.
pub(super) const LIST_FAILING: &str = concat!(
    "SELECT ",
    read!("o", "w.redrives"),
    ", w.attempts, w.blocked, w.error, ",
    clock!(),
    " - w.failing_since AS failing_for FROM (SELECT * FROM idempotency_outbox_failing \
        ORDER BY blocked DESC, failing_since LIMIT ?1) AS w \
     JOIN idempotency_outbox AS o ON o.seq = w.seq AND o.bucket = w.bucket AND o.id = w.id \
     ORDER BY w.blocked DESC, w.failing_since"
);

/// Parameter: 1 id.
pub(super) const REDRIVE_FAILING: &str = concat!(
    "UPDATE idempotency_outbox_failing SET attempts = 0, blocked = 0, retry_at = ",
    clock!(),
    ", redrives = redrives + 1 WHERE id = ?1"
);
/// Parameter: 1 id.
pub(super) const DISCARD_FAILING: &str = "DELETE FROM idempotency_outbox WHERE seq IN \
    (SELECT seq FROM idempotency_outbox_failing WHERE id = ?1) AND id = ?1";
pub(super) const FORGET_FAILING: &str = "DELETE FROM idempotency_outbox_failing WHERE id = ?1";

/// Parameters: 1 id, 2 destination, 3 topic, 4 type, 5 key, 6 age, each or nothing.
macro_rules! which {
    () => {
        concat!(
            "(?1 IS NULL OR d.id = ?1) AND (?2 IS NULL OR d.destination = ?2) AND (?3 IS NULL OR d.aggregatetype = ?3) \
             AND (?4 IS NULL OR d.type = ?4) AND (?5 IS NULL OR d.aggregateid = ?5) \
             AND (?6 IS NULL OR d.died_at <= ",
            clock!(),
            " - ?6)"
        )
    };
}

/// Parameters: those of [`which`], 7 limit.
pub(super) const DEAD: &str = concat!(
    "SELECT ",
    read!("d", "0"),
    ", d.attempts, d.error, ",
    clock!(),
    " - d.died_at AS dead_for FROM idempotency_outbox_dead AS d WHERE ",
    which!(),
    " ORDER BY d.died_at, d.seq LIMIT ?7"
);
pub(super) const DEAD_IDS: &str =
    concat!("SELECT d.id FROM idempotency_outbox_dead AS d WHERE ", which!(), " ORDER BY d.died_at, d.seq LIMIT ?7");
pub(super) const COUNT_DEAD: &str =
    concat!("SELECT count(*) FROM (SELECT 1 FROM idempotency_outbox_dead AS d WHERE ", which!(), " LIMIT ?7)");
/// One whose id is pending again is gone all the same. Parameter: 1 a JSON array of ids.
pub(super) const REDRIVE_DEAD: &str = "INSERT INTO idempotency_outbox \
        (bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, traceparent, \
        tracestate, enqueued_at, redrives) \
    SELECT bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, traceparent, \
        tracestate, enqueued_at, redrives + 1 \
    FROM idempotency_outbox_dead WHERE id IN (SELECT value FROM json_each(?1)) ORDER BY died_at, seq \
    ON CONFLICT (id) DO NOTHING";
pub(super) const DELETE_DEAD: &str =
    "DELETE FROM idempotency_outbox_dead WHERE id IN (SELECT value FROM json_each(?1))";
/// Returns how long each had been kept for too long. Parameters: 1 limit, 2 retention in microseconds.
pub(super) const PURGE_DEAD: &str = concat!(
    "DELETE FROM idempotency_outbox_dead WHERE id IN (SELECT id FROM idempotency_outbox_dead WHERE died_at <= ",
    clock!(),
    " - ?2 ORDER BY died_at, seq LIMIT ?1) RETURNING ",
    clock!(),
    " - died_at - ?2"
);
/// What was recorded of events that are not there any more. Parameter: 1 limit.
pub(super) const FORGET_FAILURES: &str = "DELETE FROM idempotency_outbox_failing WHERE rowid IN \
    (SELECT f.rowid FROM idempotency_outbox_failing AS f WHERE NOT EXISTS \
    (SELECT 1 FROM idempotency_outbox AS o WHERE o.seq = f.seq AND o.bucket = f.bucket AND o.id = f.id) LIMIT ?1)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sqlite::plans::assert_searches;

    // S31, case O02: a purge reads what has expired and no more.
    #[tokio::test]
    async fn a_purge_goes_by_the_time_index() {
        assert_searches(PURGE_DEAD, 2, "idempotency_outbox_dead_died_at").await;
    }
}
