//! The texts.

use crate::db::lease::texts;

/// The columns of an event in every table that holds some.
macro_rules! event {
    () => {
        "bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, \
         traceparent, tracestate"
    };
}

/// The same, with what is set by the server.
macro_rules! whole {
    () => {
        concat!(event!(), ", enqueued_at, redrives")
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
            ".id::text AS id, ",
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
            ".tracestate, (extract(epoch FROM ",
            $from,
            ".enqueued_at) * 1000000)::int8 AS occurred, (",
            $from,
            ".redrives + ",
            $redrives,
            ")::int8 AS redrives"
        )
    };
}

/// A pending event, with the redrives of its failures.
macro_rules! pending {
    () => {
        read!(
            "o",
            "coalesce((SELECT f.redrives FROM {schema}idempotency_outbox_failing AS f \
             WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id), 0)"
        )
    };
}

/// So many microseconds from now.
macro_rules! from_now {
    ($micros:literal) => {
        concat!("clock_timestamp() + ", $micros, " * interval '1 microsecond'")
    };
}

/// Microseconds since an instant.
macro_rules! since {
    ($instant:literal) => {
        concat!("(extract(epoch FROM clock_timestamp() - ", $instant, ") * 1000000)::int8")
    };
}

/// Parameters: 1 bucket, 2 id, 3 destination, 4 topic, 5 key, 6 type, 7 source, 8 content type, 9 payload, 10 headers,
/// 11 traceparent, 12 tracestate.
const INSERT: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox (",
    event!(),
    ") VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
);

macro_rules! unnested {
    ($more:literal, $columns:literal) => {
        concat!(
            " FROM unnest($1::int2[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
             $8::text[], $9::bytea[], $10::text[], $11::text[], $12::text[]",
            $more,
            ") WITH ORDINALITY AS e (",
            event!(),
            $columns,
            ", n) ORDER BY e.n"
        )
    };
}

macro_rules! columns {
    ($more:literal) => {
        concat!(
            "SELECT e.bucket, e.id::uuid, e.destination, e.aggregatetype, e.aggregateid, e.type, e.source, \
             e.content_type, e.payload, e.headers, e.traceparent, e.tracestate",
            $more
        )
    };
}

/// In their order: the sequence is asked after the sort. Parameters: as above, each an array.
const INSERT_ALL: &str =
    concat!("INSERT INTO {schema}idempotency_outbox (", event!(), ") ", columns!(""), unnested!("", ""));

/// Parameters: as above, 13 when each is due, in microseconds since 1970.
const DEFER: &str = concat!(
    "INSERT INTO {schema}idempotency_outbox_deferred (",
    event!(),
    ", due_at) ",
    columns!(", timestamptz 'epoch' + e.due * interval '1 microsecond'"),
    unnested!(", $13::int8[]", ", due")
);

/// Parameter: 1 limit.
const FIRST: &str =
    concat!("SELECT ", pending!(), " FROM {schema}idempotency_outbox AS o ORDER BY o.bucket, o.seq LIMIT $1");

/// One index range of each bucket. Arrays: 1 buckets, 2 numbers, 3 limits.
pub(super) const POLL: &str = concat!(
    "SELECT e.* FROM unnest('{array_1}'::int2[], '{array_2}'::int8[], '{array_3}'::int8[]) AS p (bucket, after, most) \
     CROSS JOIN LATERAL (SELECT ",
    pending!(),
    " FROM {schema}idempotency_outbox AS o WHERE o.bucket = p.bucket AND o.seq > p.after \
     ORDER BY o.seq LIMIT p.most) AS e ORDER BY e.bucket, e.seq"
);

/// Parameters: 1 bucket, 2 number.
const READ: &str =
    concat!("SELECT ", pending!(), " FROM {schema}idempotency_outbox AS o WHERE o.bucket = $1 AND o.seq = $2");

/// Arrays: 1 buckets, 2 numbers.
const READ_ALL: &str = concat!(
    "SELECT ",
    pending!(),
    " FROM unnest('{array_1}'::int2[], '{array_2}'::int8[]) AS p (bucket, seq) \
     JOIN {schema}idempotency_outbox AS o ON o.bucket = p.bucket AND o.seq = p.seq"
);

/// Parameters: 1 bucket, 2 first number, 3 destination, 4 key, 5 limit.
pub(super) const LANE: &str = concat!(
    "SELECT ",
    pending!(),
    " FROM {schema}idempotency_outbox AS o \
     WHERE o.bucket = $1 AND o.seq >= $2 AND o.destination = $3 AND o.aggregateid = $4 ORDER BY o.seq LIMIT $5"
);

/// Numbers alone. Arrays: 1 buckets, 2 and 3 numbers.
pub(super) const PRESENT: &str = "\
    SELECT e.bucket, e.seq FROM unnest('{array_1}'::int2[], '{array_2}'::int8[], '{array_3}'::int8[]) AS p (bucket, after, upto) \
    CROSS JOIN LATERAL (\
        SELECT o.bucket, o.seq FROM {schema}idempotency_outbox AS o \
        WHERE o.bucket = p.bucket AND o.seq > p.after AND o.seq <= p.upto ORDER BY o.seq\
    ) AS e";

/// Whoever inserts holds this lock on the table from before it draws a number until it has ended, prepared transactions
/// included. Parameter: 1 schema.
const WRITERS: &str = "\
    SELECT DISTINCT l.virtualtransaction AS writer FROM pg_catalog.pg_locks AS l \
    JOIN pg_catalog.pg_class AS c ON c.oid = l.relation \
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid() \
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()) \
        AND c.relname = 'idempotency_outbox' AND n.nspname = $1";

/// The last number of the sequence. Parameter: 1 schema.
const NEWEST: &str = "\
    SELECT pg_catalog.pg_sequence_last_value(d.objid::regclass) FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE c.relname = 'idempotency_outbox' AND n.nspname = $1 AND d.classid = 'pg_catalog.pg_class'::regclass \
        AND d.deptype = 'i' AND d.refobjsubid > 0";

/// Arrays: 1 buckets, 2 numbers, 3 ids.
pub(super) const DELETE: &str = "\
    WITH acked AS MATERIALIZED (\
        SELECT * FROM unnest('{array_1}'::int2[], '{array_2}'::int8[], '{array_3}'::uuid[]) AS a (bucket, seq, id)\
    ), failed AS (\
        DELETE FROM {schema}idempotency_outbox_failing AS f USING acked \
        WHERE f.bucket = acked.bucket AND f.seq = acked.seq AND f.id = acked.id\
    ) \
    DELETE FROM {schema}idempotency_outbox AS o USING acked \
    WHERE o.bucket = acked.bucket AND o.seq = acked.seq AND o.id = acked.id";

/// Whether the member takes part, who else does, and what it owns.
macro_rules! beat {
    ($conflict:literal) => {
        concat!(
            "WITH me AS (\
                INSERT INTO {schema}idempotency_outbox_relay AS m (name, token, until) \
                VALUES ($1, $2::text::uuid, ",
            from_now!("$3"),
            ") ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until",
            $conflict,
            " RETURNING name\
            ) \
            SELECT name, NULL::int2 AS bucket, NULL::int8 AS epoch, NULL::bool AS vanished FROM me \
            UNION ALL SELECT m.name, NULL, NULL, NULL FROM {schema}idempotency_outbox_relay AS m \
            WHERE m.until > clock_timestamp() AND m.name <> $1 AND EXISTS (SELECT 1 FROM me) \
            UNION ALL SELECT NULL, bucket, epoch, vanished FROM {schema}idempotency_outbox_bucket \
            WHERE owner = $2::text::uuid AND EXISTS (SELECT 1 FROM me)"
        )
    };
}

/// Parameters: 1 name, 2 token, 3 lease.
const JOIN: &str = beat!("");
const BEAT: &str = beat!(" WHERE m.token = excluded.token");

/// Parameters: 1 token, 2 limit.
const TAKE: &str = "\
    WITH free AS MATERIALIZED (\
        SELECT b.bucket, b.owner IS NOT NULL AS vanished FROM {schema}idempotency_outbox_bucket AS b \
        WHERE (b.owner IS NULL OR NOT EXISTS (\
            SELECT 1 FROM {schema}idempotency_outbox_relay AS m \
            WHERE m.token = b.owner AND m.until > clock_timestamp())) \
        AND EXISTS (\
            SELECT 1 FROM {schema}idempotency_outbox_relay AS m \
            WHERE m.token = $1::text::uuid AND m.until > clock_timestamp()) \
        ORDER BY b.bucket LIMIT $2 FOR UPDATE OF b SKIP LOCKED\
    ) \
    UPDATE {schema}idempotency_outbox_bucket AS b \
    SET owner = $1::text::uuid, epoch = b.epoch + 1, vanished = free.vanished \
    FROM free WHERE b.bucket = free.bucket RETURNING b.bucket, b.epoch, b.vanished";

/// Parameters: arrays of 1 buckets, 2 epochs, 3 owners.
const RELEASE: &str = "\
    UPDATE {schema}idempotency_outbox_bucket AS b SET owner = NULL, vanished = false \
    FROM unnest($1::int2[], $2::int8[], $3::text[]) AS f (bucket, epoch, owner) \
    WHERE b.bucket = f.bucket AND b.epoch = f.epoch AND b.owner = f.owner::uuid";

/// Parameters: 1 name, 2 token.
const LEAVE: &str = "\
    WITH gone AS (\
        DELETE FROM {schema}idempotency_outbox_relay WHERE name = $1 AND token = $2::text::uuid\
    ) \
    UPDATE {schema}idempotency_outbox_bucket SET owner = NULL, vanished = false WHERE owner = $2::text::uuid";

/// Parameter: 1 buckets.
const FAILING: &str = "\
    SELECT bucket, seq, id::text AS id, destination, aggregateid, attempts, blocked, redrives, \
        (extract(epoch FROM retry_at - clock_timestamp()) * 1000000)::int8 AS retry_in \
    FROM {schema}idempotency_outbox_failing WHERE bucket = ANY($1::int2[]) ORDER BY bucket, seq";

/// The owner's right, which nobody can take away before this statement is done. Parameters: 1 bucket, 2 epoch, 3 owner.
macro_rules! fence {
    () => {
        "fence AS MATERIALIZED (\
            SELECT 1 FROM {schema}idempotency_outbox_bucket \
            WHERE bucket = $1 AND epoch = $2 AND owner = $3::text::uuid FOR SHARE\
        )"
    };
}

/// Parameters: 1 to 3 the fence, 4 number, 5 id, 6 how many attempts to add, 7 blocked, 8 wait, 9 error.
const RECORD: &str = concat!(
    "WITH ",
    fence!(),
    " INSERT INTO {schema}idempotency_outbox_failing AS f \
        (bucket, seq, id, destination, aggregateid, attempts, blocked, failing_since, retry_at, error) \
    SELECT o.bucket, o.seq, o.id, o.destination, o.aggregateid, greatest($6, 0), $7, clock_timestamp(), ",
    from_now!("$8"),
    ", $9 FROM fence CROSS JOIN {schema}idempotency_outbox AS o \
    WHERE o.bucket = $1 AND o.seq = $4 AND o.id = $5::text::uuid \
    ON CONFLICT (bucket, seq) DO UPDATE SET id = excluded.id, destination = excluded.destination, \
        aggregateid = excluded.aggregateid, blocked = excluded.blocked, retry_at = excluded.retry_at, \
        error = excluded.error, \
        attempts = greatest(CASE WHEN f.id = excluded.id THEN f.attempts ELSE 0 END + $6, 0), \
        failing_since = CASE WHEN f.id = excluded.id THEN f.failing_since ELSE excluded.failing_since END, \
        redrives = CASE WHEN f.id = excluded.id THEN f.redrives ELSE 0 END \
    RETURNING attempts"
);

/// Into the dead letters from `gone`, which is a DELETE of an event. A letter with this id that is there is an earlier one of
/// the same event.
macro_rules! bury {
    ($redrives:literal, $attempts:literal, $error:literal) => {
        concat!(
            "INSERT INTO {schema}idempotency_outbox_dead (seq, ",
            whole!(),
            ", attempts, error, died_at) SELECT seq, ",
            event!(),
            ", enqueued_at, ",
            $redrives,
            ", ",
            $attempts,
            ", ",
            $error,
            ", clock_timestamp() FROM gone ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, bucket = excluded.bucket, \
             destination = excluded.destination, aggregatetype = excluded.aggregatetype, \
             aggregateid = excluded.aggregateid, type = excluded.type, source = excluded.source, \
             content_type = excluded.content_type, payload = excluded.payload, headers = excluded.headers, \
             traceparent = excluded.traceparent, tracestate = excluded.tracestate, \
             enqueued_at = excluded.enqueued_at, redrives = excluded.redrives, attempts = excluded.attempts, \
             error = excluded.error, died_at = excluded.died_at"
        )
    };
}

/// Parameters: 1 to 3 the fence, 4 number, 5 id, 6 attempts, 7 error.
const PARK: &str = concat!(
    "WITH ",
    fence!(),
    ", failed AS (\
        DELETE FROM {schema}idempotency_outbox_failing USING fence \
        WHERE bucket = $1 AND seq = $4 AND id = $5::text::uuid RETURNING redrives\
    ), gone AS (\
        DELETE FROM {schema}idempotency_outbox USING fence \
        WHERE bucket = $1 AND seq = $4 AND id = $5::text::uuid RETURNING seq, ",
    whole!(),
    ") ",
    bury!("redrives + coalesce((SELECT redrives FROM failed), 0)", "$6", "$7")
);

/// Parameter: 1 limit.
const PROMOTE: &str = concat!(
    "WITH due AS (\
        DELETE FROM {schema}idempotency_outbox_deferred WHERE id IN (\
            SELECT id FROM {schema}idempotency_outbox_deferred WHERE due_at <= clock_timestamp() \
            ORDER BY due_at, n LIMIT $1 FOR UPDATE SKIP LOCKED) \
        RETURNING due_at, n, ",
    whole!(),
    ") INSERT INTO {schema}idempotency_outbox (",
    whole!(),
    ") SELECT ",
    whole!(),
    " FROM due ORDER BY due_at, n ON CONFLICT (id) DO NOTHING"
);

const PAUSED: &str = "SELECT destination, has_key, aggregateid FROM {schema}idempotency_outbox_paused";
/// Parameters: 1 destination, 2 whether there is a key, 3 key.
const PAUSE: &str = "INSERT INTO {schema}idempotency_outbox_paused (destination, has_key, aggregateid) \
    VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
const RESUME: &str = "DELETE FROM {schema}idempotency_outbox_paused \
    WHERE destination = $1 AND has_key = $2 AND aggregateid = $3";

mod operators;
#[cfg(feature = "testing")]
pub(in crate::db::postgres) use operators::PURGE_DEAD;

use operators::*;

texts! {
    insert: INSERT,
    insert_all: INSERT_ALL,
    defer: DEFER,
    first: FIRST,
    poll: POLL,
    read: READ,
    read_all: READ_ALL,
    lane: LANE,
    present: PRESENT,
    writers: WRITERS,
    newest: NEWEST,
    delete: DELETE,
    join: JOIN,
    beat: BEAT,
    take: TAKE,
    release: RELEASE,
    leave: LEAVE,
    failing: FAILING,
    record: RECORD,
    park: PARK,
    promote: PROMOTE,
    paused: PAUSED,
    pause: PAUSE,
    resume: RESUME,
    stats: STATS,
    list_failing: LIST_FAILING,
    redrive_failing: REDRIVE_FAILING,
    discard_failing: DISCARD_FAILING,
    dead: DEAD,
    count_dead: COUNT_DEAD,
    redrive_dead: REDRIVE_DEAD,
    discard_dead: DISCARD_DEAD,
    purge_dead: PURGE_DEAD,
    forget_failures: FORGET_FAILURES,
    forget_members: FORGET_MEMBERS,
}

#[cfg(test)]
mod tests {
    use super::*;

    // M22, M23, cases B52, B53: pending events are inserted and deleted, and nothing notifies inside a transaction.
    #[test]
    fn no_text_updates_a_pending_event_or_notifies() {
        for (name, text) in ALL {
            assert!(!text.contains("UPDATE {schema}idempotency_outbox "), "{name}");
            assert!(!text.to_ascii_uppercase().contains("NOTIFY"), "{name}");
        }
    }
}
