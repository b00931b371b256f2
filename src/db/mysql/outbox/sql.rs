//! The texts.
//!
//! What a relay reads it reads without locks. What it changes it finds by a whole primary key, under READ COMMITTED: so it
//! locks rows that are committed, and no gap into which a producer writes (M38). An `IN` list would do neither: from some
//! length on it is planned as a scan of the table, which waits for every producer's row.

use crate::db::lease::texts;

/// The server's clock. It stands still within a statement, and follows no session's time zone.
macro_rules! clock {
    () => {
        "UTC_TIMESTAMP(6)"
    };
}

macro_rules! epoch {
    () => {
        "TIMESTAMP'1970-01-01 00:00:00'"
    };
}

/// The columns of an event in every table that holds some.
macro_rules! whole {
    ($prefix:literal) => {
        concat!(
            $prefix,
            "bucket, ",
            $prefix,
            "id, ",
            $prefix,
            "destination, ",
            $prefix,
            "aggregatetype, ",
            $prefix,
            "aggregateid, ",
            $prefix,
            "type, ",
            $prefix,
            "source, ",
            $prefix,
            "content_type, ",
            $prefix,
            "payload, ",
            $prefix,
            "headers, ",
            $prefix,
            "traceparent, ",
            $prefix,
            "tracestate, ",
            $prefix,
            "enqueued_at"
        )
    };
}

/// The columns of an event as they are read, of a table under this name; `$redrives` is added to its redrives.
macro_rules! read {
    ($from:literal, $redrives:expr) => {
        concat!(
            whole!($from),
            ", ",
            $from,
            "seq, TIMESTAMPDIFF(MICROSECOND, ",
            epoch!(),
            ", ",
            $from,
            "enqueued_at) AS occurred, ",
            $from,
            "redrives + ",
            $redrives,
            " AS redrives"
        )
    };
}

/// A pending event, with the redrives of its failures.
macro_rules! pending {
    () => {
        read!(
            "o.",
            "COALESCE((SELECT f.redrives FROM {schema}idempotency_outbox_failing AS f \
             WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id), 0)"
        )
    };
}

/// Microseconds since an instant.
macro_rules! since {
    ($instant:literal) => {
        concat!("TIMESTAMPDIFF(MICROSECOND, ", $instant, ", ", clock!(), ")")
    };
}

/// `{parts}`: one [`ROW`] an event.
const INSERT: &str = "INSERT INTO {schema}idempotency_outbox (bucket, id, destination, aggregatetype, aggregateid, type, \
    source, content_type, payload, headers, traceparent, tracestate, enqueued_at) VALUES {parts}";
/// Parameters: bucket, id, destination, topic, key, type, source, content type, payload, headers, traceparent, tracestate.
pub(super) const ROW: &str = concat!("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ", clock!(), ")");

/// `{parts}`: one [`DEFERRED_ROW`] an event.
const DEFER: &str = "INSERT INTO {schema}idempotency_outbox_deferred (bucket, id, destination, aggregatetype, aggregateid, \
    type, source, content_type, payload, headers, traceparent, tracestate, due_at, enqueued_at) VALUES {parts}";
/// Parameters: as [`ROW`], when it is due in microseconds since 1970.
pub(super) const DEFERRED_ROW: &str =
    concat!("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ", epoch!(), " + INTERVAL ? MICROSECOND, ", clock!(), ")");

/// Parameter: 1 limit.
const FIRST: &str =
    concat!("SELECT ", pending!(), " FROM {schema}idempotency_outbox AS o ORDER BY o.bucket, o.seq LIMIT ?");

/// One of a poll. The index that counts up would serve the order too, and read every other bucket's rows for it.
/// Parameters: 1 bucket, 2 number, 3 limit.
const RANGE: &str = concat!(
    "(SELECT ",
    pending!(),
    " FROM {schema}idempotency_outbox AS o FORCE INDEX (PRIMARY) \
     WHERE o.bucket = ? AND o.seq > ? ORDER BY o.seq LIMIT ?)"
);

const POLL: &str = "{parts}";

/// Parameters: 1 bucket, 2 and 3 numbers.
const NUMBERS: &str = "(SELECT CAST(o.bucket AS SIGNED) AS bucket, o.seq FROM {schema}idempotency_outbox AS o \
    FORCE INDEX (PRIMARY) WHERE o.bucket = ? AND o.seq > ? AND o.seq <= ?)";

/// The largest number: a deleted one is not needed, since what it says is a lower bound.
const NEWEST: &str = "SELECT MAX(seq) FROM {schema}idempotency_outbox";

/// The rows of a JSON array of `[bucket, number]`, each by its primary key. Parameter: 1 the array.
const READ_ALL: &str = concat!(
    "SELECT ",
    pending!(),
    " FROM JSON_TABLE(?, '$[*]' COLUMNS (bucket TINYINT PATH '$[0]', seq BIGINT PATH '$[1]')) AS a \
     STRAIGHT_JOIN {schema}idempotency_outbox AS o ON o.bucket = a.bucket AND o.seq = a.seq"
);

/// Parameters: 1 bucket, 2 first number, 3 destination, 4 key, 5 limit.
const LANE: &str = concat!(
    "SELECT ",
    pending!(),
    " FROM {schema}idempotency_outbox AS o FORCE INDEX (PRIMARY) \
     WHERE o.bucket = ? AND o.seq >= ? AND o.destination = ? AND o.aggregateid = ? ORDER BY o.seq LIMIT ?"
);

/// Parameters: 1 bucket, 2 number.
const READ: &str =
    concat!("SELECT ", pending!(), " FROM {schema}idempotency_outbox AS o WHERE o.bucket = ? AND o.seq = ?");

/// A JSON array of `[bucket, number, id]`. One parameter.
macro_rules! triples {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (bucket TINYINT PATH '$[0]', seq BIGINT PATH '$[1]', \
         id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]')) AS a"
    };
}

/// Each by its primary key. Parameter: 1 the array.
const DELETE: &str = concat!(
    "DELETE o, f FROM ",
    triples!(),
    " \
    STRAIGHT_JOIN {schema}idempotency_outbox AS o ON o.bucket = a.bucket AND o.seq = a.seq AND o.id = a.id \
    LEFT JOIN {schema}idempotency_outbox_failing AS f ON f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id"
);

/// Parameters: 1 name, 2 token, 3 lease.
const JOIN: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox_relay (name, token, live_until) VALUES (?, ?, ",
    clock!(),
    " + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE token = VALUES(token), live_until = VALUES(live_until)"
);
/// Parameters: 1 lease, 2 name, 3 token.
const BEAT: &str = concat!(
    "UPDATE {schema}idempotency_outbox_relay SET live_until = ",
    clock!(),
    " + INTERVAL ? MICROSECOND WHERE name = ? AND token = ?"
);
/// After a beat that has met no row. Parameters: 1 name, 2 token, 3 lease.
const JOIN_AGAIN: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox_relay (name, token, live_until) VALUES (?, ?, ",
    clock!(),
    " + INTERVAL ? MICROSECOND)"
);
const LIVE: &str =
    concat!("SELECT name, token FROM {schema}idempotency_outbox_relay WHERE live_until > ", clock!(), " ORDER BY name");
const BUCKETS: &str = "SELECT bucket, owner, epoch, vanished FROM {schema}idempotency_outbox_bucket ORDER BY bucket";

/// The rows of a JSON array of `[bucket, epoch, digits of the owner or null]` that still are so. One parameter.
macro_rules! seen {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (bucket TINYINT PATH '$[0]', epoch BIGINT PATH '$[1]', owner CHAR(32) PATH '$[2]')) AS a \
         STRAIGHT_JOIN {schema}idempotency_outbox_bucket AS b \
         ON b.bucket = a.bucket AND b.epoch = a.epoch AND b.owner <=> UNHEX(a.owner)"
    };
}

/// Columns are assigned from left to right. Parameters: 1 those that were seen, 2 token.
const TAKE: &str =
    concat!("UPDATE ", seen!(), " SET b.vanished = b.owner IS NOT NULL, b.epoch = b.epoch + 1, b.owner = ?");
/// Parameter: 1 those that were seen.
const RELEASE: &str = concat!("UPDATE ", seen!(), " SET b.vanished = 0, b.owner = NULL");
/// Parameter: 1 token.
const RELEASE_ALL: &str = "UPDATE {schema}idempotency_outbox_bucket SET owner = NULL, vanished = 0 WHERE owner = ?";
/// Parameters: 1 name, 2 token.
const LEAVE: &str = "DELETE FROM {schema}idempotency_outbox_relay WHERE name = ? AND token = ?";

/// Parameter: 1 a JSON array of buckets.
const FAILING: &str = concat!(
    "SELECT f.bucket, f.seq, f.id, f.destination, f.aggregateid, f.attempts, f.blocked, f.redrives, \
        TIMESTAMPDIFF(MICROSECOND, ",
    clock!(),
    ", f.retry_at) AS retry_in \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (bucket TINYINT PATH '$')) AS b \
     STRAIGHT_JOIN {schema}idempotency_outbox_failing AS f ON f.bucket = b.bucket ORDER BY f.bucket, f.seq"
);

/// The owner's right, which nobody can take away before this transaction is done. Parameters: 1 bucket, 2 epoch, 3 owner.
const FENCE: &str =
    "SELECT 1 FROM {schema}idempotency_outbox_bucket WHERE bucket = ? AND epoch = ? AND owner = ? FOR UPDATE";

/// Columns are assigned from left to right, and each later one sees the earlier ones. Parameters: 1 attempts to add, 2
/// blocked, 3 wait, 4 error, 5 bucket, 6 number, 7 id, 8 attempts to add.
const RECORD: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox_failing \
        (bucket, seq, id, destination, aggregateid, attempts, blocked, failing_since, retry_at, error) \
     SELECT o.bucket, o.seq, o.id, o.destination, o.aggregateid, GREATEST(?, 0), ?, ",
    clock!(),
    ", ",
    clock!(),
    " + INTERVAL ? MICROSECOND, ? \
     FROM {schema}idempotency_outbox AS o WHERE o.bucket = ? AND o.seq = ? AND o.id = ? \
     ON DUPLICATE KEY UPDATE \
        attempts = GREATEST(IF(idempotency_outbox_failing.id = VALUES(id), idempotency_outbox_failing.attempts, 0) + ?, 0), \
        failing_since = IF(idempotency_outbox_failing.id = VALUES(id), \
            idempotency_outbox_failing.failing_since, VALUES(failing_since)), \
        redrives = IF(idempotency_outbox_failing.id = VALUES(id), idempotency_outbox_failing.redrives, 0), \
        id = VALUES(id), destination = VALUES(destination), aggregateid = VALUES(aggregateid), \
        blocked = VALUES(blocked), retry_at = VALUES(retry_at), error = VALUES(error)"
);
/// Parameters: 1 bucket, 2 number, 3 id.
const ATTEMPTS: &str =
    "SELECT attempts FROM {schema}idempotency_outbox_failing WHERE bucket = ? AND seq = ? AND id = ?";

/// A letter with this id that is there is an earlier one of the same event. Parameters: 1 attempts, 2 error, 3 bucket, 4 number, 5 id.
const BURY: &str = concat!(
    "REPLACE INTO {schema}idempotency_outbox_dead (",
    whole!(""),
    ", seq, redrives, attempts, error, died_at) SELECT ",
    whole!("o."),
    ", o.seq, o.redrives + COALESCE(f.redrives, 0), ?, ?, ",
    clock!(),
    " FROM {schema}idempotency_outbox AS o LEFT JOIN {schema}idempotency_outbox_failing AS f \
      ON f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id \
     WHERE o.bucket = ? AND o.seq = ? AND o.id = ?"
);

/// Parameter: 1 limit.
macro_rules! due {
    ($lock:literal) => {
        concat!(
            "SELECT n FROM {schema}idempotency_outbox_deferred WHERE due_at <= ",
            clock!(),
            " ORDER BY due_at, n LIMIT ?",
            $lock
        )
    };
}
const IS_DUE: &str = due!("");
const DUE: &str = due!(" FOR UPDATE SKIP LOCKED");
/// One whose id is pending is left out. Parameter: 1 a JSON array of numbers.
const PROMOTE: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox (",
    whole!(""),
    ", redrives) SELECT ",
    whole!("w."),
    ", w.redrives FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) AS a \
     STRAIGHT_JOIN {schema}idempotency_outbox_deferred AS w ON w.n = a.n \
     WHERE NOT EXISTS (SELECT 1 FROM {schema}idempotency_outbox AS o WHERE o.id = w.id) ORDER BY w.due_at, w.n"
);
const DELETE_DEFERRED: &str = "DELETE w FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) AS a \
    STRAIGHT_JOIN {schema}idempotency_outbox_deferred AS w ON w.n = a.n";

const PAUSED: &str = "SELECT destination, has_key, aggregateid FROM {schema}idempotency_outbox_paused";
/// Parameters: 1 destination, 2 whether there is a key, 3 key.
const PAUSE: &str = "INSERT INTO {schema}idempotency_outbox_paused (destination, has_key, aggregateid) VALUES (?, ?, ?) \
    ON DUPLICATE KEY UPDATE has_key = VALUES(has_key)";
const RESUME: &str =
    "DELETE FROM {schema}idempotency_outbox_paused WHERE destination = ? AND has_key = ? AND aggregateid = ?";

mod operators;
#[cfg(feature = "testing")]
pub(in crate::db::mysql) use operators::LOCK_OLD_DEAD;

use operators::*;

texts! {
    insert: INSERT,
    defer: DEFER,
    first: FIRST,
    poll: POLL,
    range: RANGE,
    numbers: NUMBERS,
    newest: NEWEST,
    read: READ,
    read_all: READ_ALL,
    lane: LANE,
    delete: DELETE,
    join: JOIN,
    beat: BEAT,
    join_again: JOIN_AGAIN,
    live: LIVE,
    buckets: BUCKETS,
    take: TAKE,
    release: RELEASE,
    release_all: RELEASE_ALL,
    leave: LEAVE,
    failing: FAILING,
    fence: FENCE,
    record: RECORD,
    attempts: ATTEMPTS,
    bury: BURY,
    is_due: IS_DUE,
    due: DUE,
    promote: PROMOTE,
    delete_deferred: DELETE_DEFERRED,
    paused: PAUSED,
    pause: PAUSE,
    resume: RESUME,
    stats: STATS,
    list_failing: LIST_FAILING,
    redrive_failing: REDRIVE_FAILING,
    find_failing: FIND_FAILING,
    dead: DEAD,
    count_dead: COUNT_DEAD,
    lock_dead: LOCK_DEAD,
    lock_old_dead: LOCK_OLD_DEAD,
    redrive_dead: REDRIVE_DEAD,
    delete_dead: DELETE_DEAD,
    left_failures: LEFT_FAILURES,
    forget_failures: FORGET_FAILURES,
    forget_members: FORGET_MEMBERS,
}

#[cfg(test)]
mod tests {
    use super::*;

    // M22, M38: pending events are inserted and deleted; none is looked for by a list.
    #[test]
    fn no_text_updates_a_pending_event_or_lists_them() {
        for (name, text) in ALL {
            assert!(!text.contains("UPDATE {schema}idempotency_outbox "), "{name}");
            assert!(!text.contains(" IN ("), "{name}");
            assert!(!text.contains("IGNORE"), "{name}");
        }
    }
}
