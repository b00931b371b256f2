//! The texts of operators' calls.

/// Counting no further than the limit. Parameter: 1 limit.
macro_rules! count {
    ($from:literal) => {
        concat!("(SELECT count(*) FROM (SELECT 1 FROM {schema}", $from, " LIMIT $1) AS counted)")
    };
}

/// Parameter: 1 limit.
pub(super) const STATS: &str = concat!(
    "SELECT ",
    count!("idempotency_outbox"),
    " AS pending, (SELECT max(",
    since!("o.enqueued_at"),
    ") FROM generate_series(0, 63) AS part (bucket) CROSS JOIN LATERAL (\
        SELECT enqueued_at FROM {schema}idempotency_outbox WHERE bucket = part.bucket ORDER BY seq LIMIT 1\
    ) AS o) AS oldest_age, ",
    count!("idempotency_outbox_failing WHERE NOT blocked"),
    " AS failing, ",
    count!("idempotency_outbox_failing WHERE blocked"),
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
    since!("w.failing_since"),
    " AS failing_for FROM (SELECT * FROM {schema}idempotency_outbox_failing \
        ORDER BY blocked DESC, failing_since LIMIT $1) AS w \
     JOIN {schema}idempotency_outbox AS o ON o.bucket = w.bucket AND o.seq = w.seq AND o.id = w.id \
     ORDER BY w.blocked DESC, w.failing_since"
);

/// Parameter: 1 id.
pub(super) const REDRIVE_FAILING: &str = "\
    UPDATE {schema}idempotency_outbox_failing \
    SET attempts = 0, blocked = false, retry_at = clock_timestamp(), redrives = redrives + 1 \
    WHERE id = $1::text::uuid";

/// Parameter: 1 id.
pub(super) const DISCARD_FAILING: &str = "\
    WITH failed AS (\
        DELETE FROM {schema}idempotency_outbox_failing WHERE id = $1::text::uuid RETURNING bucket, seq, id\
    ) \
    DELETE FROM {schema}idempotency_outbox AS o USING failed \
    WHERE o.bucket = failed.bucket AND o.seq = failed.seq AND o.id = failed.id";

/// Parameters: 1 id, 2 destination, 3 topic, 4 type, 5 key, 6 age, each or nothing.
macro_rules! which {
    () => {
        "($1::text IS NULL OR d.id = $1::text::uuid) AND ($2::text IS NULL OR d.destination = $2) \
         AND ($3::text IS NULL OR d.aggregatetype = $3) AND ($4::text IS NULL OR d.type = $4) \
         AND ($5::text IS NULL OR d.aggregateid = $5) \
         AND ($6::int8 IS NULL OR d.died_at <= clock_timestamp() - $6 * interval '1 microsecond')"
    };
}

/// Parameters: those of [`which`], 7 limit.
pub(super) const DEAD: &str = concat!(
    "SELECT ",
    read!("d", "0"),
    ", d.attempts, d.error, ",
    since!("d.died_at"),
    " AS dead_for FROM {schema}idempotency_outbox_dead AS d WHERE ",
    which!(),
    " ORDER BY d.died_at, d.seq LIMIT $7"
);
pub(super) const COUNT_DEAD: &str = concat!(
    "SELECT count(*) FROM (SELECT 1 FROM {schema}idempotency_outbox_dead AS d WHERE ",
    which!(),
    " LIMIT $7) AS counted"
);

macro_rules! gone {
    () => {
        concat!(
            "WITH gone AS (\
                DELETE FROM {schema}idempotency_outbox_dead WHERE id IN (\
                    SELECT d.id FROM {schema}idempotency_outbox_dead AS d WHERE ",
            which!(),
            " ORDER BY d.died_at, d.seq LIMIT $7 FOR UPDATE SKIP LOCKED) RETURNING died_at, seq, ",
            whole!(),
            ")"
        )
    };
}

/// One whose id is pending again is gone all the same. Parameters: those of [`which`], 7 limit.
pub(super) const REDRIVE_DEAD: &str = concat!(
    gone!(),
    ", back AS (INSERT INTO {schema}idempotency_outbox (",
    whole!(),
    ") SELECT ",
    event!(),
    ", enqueued_at, redrives + 1 FROM gone ORDER BY died_at, seq ON CONFLICT (id) DO NOTHING) \
     SELECT count(*) FROM gone"
);
pub(super) const DISCARD_DEAD: &str = concat!(gone!(), " SELECT count(*) FROM gone");

/// Returns how long each had been kept for too long, in microseconds. Parameters: 1 limit, 2 retention in microseconds.
pub(in crate::db::postgres) const PURGE_DEAD: &str = "\
    DELETE FROM {schema}idempotency_outbox_dead AS dead WHERE id IN (\
        SELECT id FROM {schema}idempotency_outbox_dead \
        WHERE died_at <= (SELECT clock_timestamp() - $2 * interval '1 microsecond') \
        ORDER BY died_at, seq LIMIT $1 FOR UPDATE SKIP LOCKED) \
    RETURNING (extract(epoch FROM clock_timestamp() - dead.died_at) * 1000000)::int8 - $2";

/// What was recorded of events that are not there any more: an ack may come while a failure is being recorded. What somebody
/// has locked is left for the next time. Parameter: 1 limit.
pub(super) const FORGET_FAILURES: &str = "\
    DELETE FROM {schema}idempotency_outbox_failing WHERE (bucket, seq) IN (\
        SELECT f.bucket, f.seq FROM {schema}idempotency_outbox_failing AS f WHERE NOT EXISTS (\
            SELECT 1 FROM {schema}idempotency_outbox AS o WHERE o.bucket = f.bucket AND o.seq = f.seq AND o.id = f.id) \
        LIMIT $1 FOR UPDATE OF f SKIP LOCKED)";

/// Members who have not been seen for a day. Parameter: 1 limit.
pub(super) const FORGET_MEMBERS: &str = "\
    DELETE FROM {schema}idempotency_outbox_relay WHERE name IN (\
        SELECT name FROM {schema}idempotency_outbox_relay WHERE until < clock_timestamp() - interval '1 day' \
        LIMIT $1 FOR UPDATE SKIP LOCKED)";
