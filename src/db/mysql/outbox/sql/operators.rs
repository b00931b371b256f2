//! The texts of operators' calls.

/// Counting no further than the limit. Parameter: limit.
macro_rules! count {
    ($from:literal) => {
        concat!("(SELECT COUNT(*) FROM (SELECT 1 FROM {schema}", $from, " LIMIT ?) AS counted)")
    };
}

/// Parameters: 5 times the limit.
pub(super) const STATS: &str = concat!(
    "SELECT ",
    count!("idempotency_outbox"),
    " AS pending, (SELECT ",
    since!("enqueued_at"),
    " FROM {schema}idempotency_outbox ORDER BY seq LIMIT 1) AS oldest_age, ",
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
    read!("o.", "w.redrives"),
    ", w.attempts, w.blocked, w.error, ",
    since!("w.failing_since"),
    " AS failing_for FROM (SELECT * FROM {schema}idempotency_outbox_failing \
        ORDER BY blocked DESC, failing_since LIMIT ?) AS w \
     JOIN {schema}idempotency_outbox AS o ON o.bucket = w.bucket AND o.seq = w.seq AND o.id = w.id \
     ORDER BY w.blocked DESC, w.failing_since"
);

/// Parameter: 1 id.
pub(super) const REDRIVE_FAILING: &str = concat!(
    "UPDATE {schema}idempotency_outbox_failing SET attempts = 0, blocked = 0, retry_at = ",
    clock!(),
    ", redrives = redrives + 1 WHERE id = ?"
);
/// Parameter: 1 id.
pub(super) const FIND_FAILING: &str =
    "SELECT bucket, seq, id FROM {schema}idempotency_outbox_failing WHERE id = ? FOR UPDATE";

/// Names and keys are compared as bytes: a collation would pad them with spaces. Parameters: twice each of 1 id, 2
/// destination, 3 topic, 4 type, 5 key, 6 age, or nothing.
macro_rules! which {
    () => {
        concat!(
            "(? IS NULL OR d.id = ?) AND (? IS NULL OR CAST(d.destination AS BINARY) = ?) \
             AND (? IS NULL OR CAST(d.aggregatetype AS BINARY) = ?) AND (? IS NULL OR CAST(d.type AS BINARY) = ?) \
             AND (? IS NULL OR CAST(d.aggregateid AS BINARY) = ?) AND (? IS NULL OR d.died_at <= ",
            clock!(),
            " - INTERVAL ? MICROSECOND)"
        )
    };
}

/// Parameters: those of [`which`], limit.
pub(super) const DEAD: &str = concat!(
    "SELECT ",
    read!("d.", "0"),
    ", d.attempts, d.error, ",
    since!("d.died_at"),
    " AS dead_for FROM {schema}idempotency_outbox_dead AS d WHERE ",
    which!(),
    " ORDER BY d.died_at, d.seq LIMIT ?"
);
pub(super) const COUNT_DEAD: &str = concat!(
    "SELECT COUNT(*) FROM (SELECT 1 FROM {schema}idempotency_outbox_dead AS d WHERE ",
    which!(),
    " LIMIT ?) AS counted"
);
pub(super) const LOCK_DEAD: &str = concat!(
    "SELECT d.id FROM {schema}idempotency_outbox_dead AS d WHERE ",
    which!(),
    " ORDER BY d.died_at, d.seq LIMIT ? FOR UPDATE SKIP LOCKED"
);

/// Parameters: 1 and 2 retention in microseconds, 3 limit.
pub(in crate::db::mysql) const LOCK_OLD_DEAD: &str = concat!(
    "SELECT id, TIMESTAMPDIFF(MICROSECOND, died_at, ",
    clock!(),
    ") - ? AS overdue FROM {schema}idempotency_outbox_dead WHERE died_at <= ",
    clock!(),
    " - INTERVAL ? MICROSECOND ORDER BY died_at, seq LIMIT ? FOR UPDATE SKIP LOCKED"
);

/// The ids of a JSON array. One parameter.
macro_rules! ids {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS a"
    };
}

/// One whose id is pending again is left out. Parameter: 1 a JSON array of ids.
pub(super) const REDRIVE_DEAD: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox (",
    whole!(""),
    ", redrives) SELECT ",
    whole!("d."),
    ", d.redrives + 1 FROM ",
    ids!(),
    " STRAIGHT_JOIN {schema}idempotency_outbox_dead AS d ON d.id = a.id \
     WHERE NOT EXISTS (SELECT 1 FROM {schema}idempotency_outbox AS o WHERE o.id = d.id) ORDER BY d.died_at, d.seq"
);
pub(super) const DELETE_DEAD: &str =
    concat!("DELETE d FROM ", ids!(), " STRAIGHT_JOIN {schema}idempotency_outbox_dead AS d ON d.id = a.id");

/// What was recorded of events that are not there any more. Parameter: 1 limit.
pub(super) const LEFT_FAILURES: &str = "SELECT f.bucket, f.seq, f.id FROM {schema}idempotency_outbox_failing AS f \
    LEFT JOIN {schema}idempotency_outbox AS o ON o.bucket = f.bucket AND o.seq = f.seq AND o.id = f.id \
    WHERE o.id IS NULL LIMIT ?";
/// Parameter: 1 a JSON array as for [`DELETE`].
pub(super) const FORGET_FAILURES: &str = concat!(
    "DELETE f FROM ",
    triples!(),
    " STRAIGHT_JOIN {schema}idempotency_outbox_failing AS f ON f.bucket = a.bucket AND f.seq = a.seq AND f.id = a.id"
);
/// Members who have not been seen for a day.
pub(super) const FORGET_MEMBERS: &str =
    concat!("DELETE FROM {schema}idempotency_outbox_relay WHERE live_until < ", clock!(), " - INTERVAL 1 DAY");
