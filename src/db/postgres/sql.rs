//! Every SQL text for Postgres, 13 or newer.

mod operate;

pub(crate) use operate::*;

/// BEGIN at an isolation level, alone and with a mark that is gone when the transaction has ended. The mark travels in
/// the same message.
macro_rules! begin {
    ($level:literal) => {
        concat!("BEGIN ISOLATION LEVEL ", $level)
    };
    ($level:literal marked) => {
        concat!(begin!($level), "; SET LOCAL idempotency.unkeyed = 'open'")
    };
}

pub(crate) const BEGIN: &str = begin!("READ COMMITTED");
pub(crate) const BEGIN_REPEATABLE_READ: &str = begin!("REPEATABLE READ");
pub(crate) const BEGIN_SERIALIZABLE: &str = begin!("SERIALIZABLE");
pub(crate) const BEGIN_MARKED: &str = begin!("READ COMMITTED" marked);
pub(crate) const BEGIN_MARKED_REPEATABLE_READ: &str = begin!("REPEATABLE READ" marked);
pub(crate) const BEGIN_MARKED_SERIALIZABLE: &str = begin!("SERIALIZABLE" marked);

/// Whether this is still the transaction that was begun with the mark. Fails in an aborted one.
pub(crate) const PROBE_MARK: &str = "SELECT coalesce(current_setting('idempotency.unkeyed', true), '') = 'open'";

/// The parts that the claim's forms share.
macro_rules! claim_part {
    // A new row, from the time `moment.at`.
    (insert) => {
        r#"INSERT INTO {schema}idempotency_keys AS held
        (scope, id_key, endpoint, state, fingerprint, token, claim_xid, accepted_at, expires_at)
    SELECT $1, $2, $3, 0, $7, $8, pg_current_xact_id(), moment.at, moment.at + $9 * interval '1 microsecond'"#
    };
    // One time for the row's two: a settlement that leaves `expires_at` alone touches no index.
    (moment) => {
        "(SELECT clock_timestamp() AS at OFFSET 0) AS moment"
    };
    // The same with the bounds, set whether or not a row comes of it.
    (bounded moment) => {
        concat!("(SELECT clock_timestamp() AS at,\n        ", claim_part!(bounds), " OFFSET 0) AS moment")
    };
    // Under the lock of another part, inserts, or takes over an expired row; leaves every live row alone.
    (claimed) => {
        concat!(
            "claimed AS (\n    ",
            claim_part!(insert),
            "\n    FROM k CROSS JOIN LATERAL ",
            claim_part!(moment),
            r#"
    WHERE k.got
    ON CONFLICT (scope, id_key, endpoint) DO UPDATE SET
        state = 0, fingerprint = excluded.fingerprint, token = excluded.token, claim_xid = excluded.claim_xid,
        accepted_at = excluded.accepted_at, settled_at = NULL, expires_at = excluded.expires_at, answer = NULL
    WHERE held.expires_at <= clock_timestamp()
    RETURNING ctid::text AS ctid, claim_xid::text AS xid, accepted_at
)"#
        )
    };
    (live) => {
        r#"live AS MATERIALIZED (
    SELECT state, fingerprint, answer FROM {schema}idempotency_keys
    WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND expires_at > clock_timestamp()
)"#
    };
    // The bounds of the transaction, for whoever takes K: also who merely asks holds it until its transaction ends.
    (bounds) => {
        r#"set_config('idle_in_transaction_session_timeout', coalesce($10, '0'), true),
        set_config('tcp_keepalives_idle', $11, true),
        set_config('tcp_keepalives_interval', $12, true)"#
    };
    // Locks K.
    (k) => {
        concat!("k AS MATERIALIZED (\n    SELECT pg_try_advisory_xact_lock($4) AS got,\n        ", claim_part!(bounds))
    };
    // Locks F, from the row that `claimed` returned alone.
    (f) => {
        "f AS MATERIALIZED (\n    SELECT pg_try_advisory_xact_lock($5, $6) AS got FROM claimed\n)"
    };
    // Frees the probe, looks at the rivals where it was obtained, and reads every part.
    (verdict) => {
        r#"freed AS MATERIALIZED (
    SELECT pg_advisory_unlock_shared($5, $6) AS done FROM probe WHERE probe.got
), rival AS MATERIALIZED (
    SELECT bool_or(owner.holds_key AND owner.holds_other) AS other FROM (
        SELECT
            bool_or(objsubid = 1 AND classid::int8 = (($4 >> 32) & 4294967295)
                AND objid::int8 = ($4 & 4294967295)) AS holds_key,
            bool_or(objsubid = 2 AND classid::int8 = ($5::int8 & 4294967295)
                AND objid::int8 <> ($6::int8 & 4294967295)) AS holds_other
        FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND EXISTS (SELECT FROM freed)
        GROUP BY pid
    ) AS owner
)
SELECT
    (SELECT state FROM live) AS state,
    (SELECT fingerprint FROM live) AS fingerprint,
    (SELECT answer FROM live) AS answer,
    (SELECT got FROM k) AS got_key,
    (SELECT ctid FROM claimed) AS ctid,
    (SELECT xid FROM claimed) AS xid,
    (SELECT (extract(epoch FROM accepted_at) * 1000000)::int8 FROM claimed) AS accepted,
    (SELECT got FROM f) AS got_fingerprint,
    (SELECT got FROM probe) AS probed,
    (SELECT done FROM freed) AS freed,
    (SELECT other FROM rival) AS rival
"#
    };
}

/// The claim under READ COMMITTED of a key that has no row, which is nearly every one, with the parameters of [`CLAIM`]:
/// lock K, insert, and from the returned row alone lock F, as there. It asks for no more, because what a larger
/// statement costs is mostly its plan's size. No row comes back where the key is held, or has a row, live or expired:
/// the caller asks by [`CLAIM`], and may hold K then.
pub(crate) const CLAIM_NEW: &str = concat!(
    "\n    ",
    claim_part!(insert),
    "\n    FROM ",
    claim_part!(bounded moment),
    r#"
    WHERE pg_try_advisory_xact_lock($4)
    ON CONFLICT (scope, id_key, endpoint) DO NOTHING
    RETURNING ctid::text AS ctid, claim_xid::text AS xid, (extract(epoch FROM accepted_at) * 1000000)::int8 AS accepted,
        pg_try_advisory_xact_lock($5, $6)
"#
);

/// The live row alone, in a statement of its own outside any transaction: it takes no lock and writes nothing.
/// Parameters: 1 scope, 2 key, 3 endpoint.
pub(crate) const PEEK: &str = r#"
SELECT state, fingerprint, answer FROM {schema}idempotency_keys
WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND expires_at > clock_timestamp()
"#;

/// The claim under READ COMMITTED, in one statement. Each part depends on the one before, and the final SELECT reads
/// them all: a part that nobody reads is never run.
///
/// 1. A live row alone decides; no lock is tried, nothing is written.
/// 2. No live row: lock K, for the look-up key.
/// 3. K got: insert, or take over an expired row; only from the row this returns is lock F, for the fingerprint,
///    tried, so that F is held by owners alone.
/// 4. K missed: probe F and free it at once. Not obtained: somebody runs this very request. Obtained: one look at who
///    holds K together with an F of this key and profile that is not ours. This order is what keeps an honest retry
///    from ever being told that its key belongs to another request.
/// 5. K got, nothing inserted, no row seen: committed after this statement's snapshot. The caller asks again.
///
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 K, 5 and 6 F, 7 fingerprint, 8 token, 9 retention in microseconds,
/// 10 idle timeout, 11 and 12 keepalive, each in milliseconds or seconds as text.
pub(crate) const CLAIM: &str = concat!(
    "\nWITH ",
    claim_part!(live),
    ", ",
    claim_part!(k),
    r#"
    WHERE NOT EXISTS (SELECT FROM live)
), "#,
    claim_part!(claimed),
    ", ",
    claim_part!(f),
    r#", probe AS MATERIALIZED (
    SELECT pg_try_advisory_lock_shared($5, $6) AS got FROM k WHERE NOT k.got
), "#,
    claim_part!(verdict)
);

/// The claim under REPEATABLE READ and SERIALIZABLE: the lock and the INSERT come first and the row is read only
/// where nothing was inserted, since a row read first costs a predicate lock that makes claims of different keys
/// fail each other. Same parameters, same columns.
pub(crate) const CLAIM_STRICT: &str = concat!(
    "\nWITH ",
    claim_part!(k),
    "\n), ",
    claim_part!(claimed),
    ", ",
    claim_part!(f),
    r#", live AS MATERIALIZED (
    SELECT state, fingerprint, answer FROM {schema}idempotency_keys
    WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND expires_at > clock_timestamp()
        AND NOT EXISTS (SELECT FROM claimed)
), probe AS MATERIALIZED (
    SELECT pg_try_advisory_lock_shared($5, $6) AS got FROM k WHERE NOT k.got AND NOT EXISTS (SELECT FROM live)
), "#,
    claim_part!(verdict)
);

/// Stores the answer in the claim's own transaction, or changes nothing: the row's transaction is compared with the
/// one that settles, so that a handler's own COMMIT or ROLLBACK shows.
/// Parameters: 1 ctid, 2 scope, 3 key, 4 endpoint, 5 retention in microseconds, 6 answer.
pub(crate) const SETTLE: &str = r#"
UPDATE {schema}idempotency_keys SET
    state = 1, answer = $6, settled_at = clock_timestamp(),
    expires_at = greatest(accepted_at + $5 * interval '1 microsecond', clock_timestamp() + interval '60 seconds')
WHERE ctid = $1::text::tid AND scope = $2 AND id_key = $3 AND endpoint = $4 AND state = 0
    AND claim_xid = pg_current_xact_id()
"#;

/// The transaction that is open now, if it has written.
pub(crate) const CURRENT_XID: &str = "SELECT pg_current_xact_id_if_assigned()::text";

/// Stores a finished record in a transaction of its own: a refusal after the rollback (state 1) or an orphan (2).
/// It tries K, never waits for a rival, and leaves every live record of somebody else alone.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 K, 5 fingerprint, 6 token, 7 state, 8 accepted (microseconds since the
/// epoch), 9 retention in microseconds, 10 answer.
pub(crate) const STORE_FINISHED: &str = r#"
WITH k AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($4) AS got
), stored AS (
    INSERT INTO {schema}idempotency_keys AS held
        (scope, id_key, endpoint, state, fingerprint, token, accepted_at, settled_at, expires_at, answer)
    SELECT $1, $2, $3, $7, $5, $6, accepted.at, clock_timestamp(),
        greatest(accepted.at + $9 * interval '1 microsecond', clock_timestamp() + interval '60 seconds'), $10
    FROM k CROSS JOIN (SELECT timestamptz 'epoch' + $8 * interval '1 microsecond' AS at) AS accepted
    WHERE k.got
    ON CONFLICT (scope, id_key, endpoint) DO UPDATE SET
        state = excluded.state, fingerprint = excluded.fingerprint, token = excluded.token, claim_xid = NULL,
        accepted_at = excluded.accepted_at, settled_at = excluded.settled_at, expires_at = excluded.expires_at,
        answer = excluded.answer
    WHERE held.expires_at <= clock_timestamp() OR (held.token = excluded.token AND held.state = 0)
    RETURNING 1
)
SELECT count(*) FROM stored
"#;

/// Whether this claim's answer was committed after all. Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const FIND_OWN: &str = r#"
SELECT 1 FROM {schema}idempotency_keys
WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $4 AND state = 1
"#;

/// Deletes expired rows, steps over those that a claim is taking over, and returns how long each had been expired, in
/// microseconds. The clock is asked in a query of its own: a condition that asks it anew for each row is none for an index,
/// and where little has expired the whole index would be read. Parameter: 1 limit.
pub(crate) const PURGE: &str = r#"
DELETE FROM {schema}idempotency_keys AS expired
USING (
    SELECT scope, id_key, endpoint FROM {schema}idempotency_keys
    WHERE expires_at <= (SELECT clock_timestamp()) ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
) AS batch
WHERE expired.scope = batch.scope AND expired.id_key = batch.id_key AND expired.endpoint = batch.endpoint
    AND expired.expires_at <= clock_timestamp()
RETURNING (extract(epoch FROM clock_timestamp() - expired.expires_at) * 1000000)::int8
"#;

/// When the first row of a table has expired. A lease that was given back expired at the beginning of time.
macro_rules! first_expired {
    ($table:literal) => {
        concat!(
            "(SELECT expires_at FROM {schema}",
            $table,
            " WHERE expires_at > '2000-01-01' ORDER BY expires_at LIMIT 1)"
        )
    };
}

/// Whether something has expired that a purger would have taken long ago (O01).
pub(crate) const UNPURGED: &str = concat!(
    "SELECT COALESCE(LEAST(",
    first_expired!("idempotency_keys"),
    ", ",
    first_expired!("idempotency_leases"),
    ", ",
    first_expired!("idempotency_inbox"),
    ") < clock_timestamp() - interval '1 day', false)"
);

/// Parameter: 1 lock.
pub(crate) const LOCK_PURGE: &str = "SELECT pg_try_advisory_xact_lock($1)";

/// What a store must know of its server: version, whether it is a read-only replica, whether statements
/// outside a transaction run under READ COMMITTED, and the schema of the table (where it stands on the search path, else
/// where it would be created). Parameters: 1 schema, if one was named, 2 table.
pub(crate) const INSPECT: &str = r#"
SELECT
    current_setting('server_version_num')::int4 AS version,
    pg_is_in_recovery() AS replica,
    current_setting('default_transaction_isolation') = 'read committed' AS reads_committed,
    coalesce($1, (
        SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = to_regclass($2)
    ), current_schema()::text) AS schema
"#;

pub(crate) const SCHEMA_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";
pub(crate) const CREATE_SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS {schema_name}";

pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_keys.sql"),
    include_str!("../../../migrations/postgres/0002_leases.sql"),
    include_str!("../../../migrations/postgres/0003_inbox.sql"),
    include_str!("../../../migrations/postgres/0004_outbox.sql"),
];
pub(crate) const HISTORY: &str = r#"
CREATE TABLE IF NOT EXISTS {schema}idempotency_migrations (
    version    int4 PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"#;
/// One migrating process at a time; freed with the transaction, so that no pooler can keep it. Parameter: 1 lock.
pub(crate) const LOCK_MIGRATIONS: &str = "SELECT pg_advisory_xact_lock($1)";
pub(crate) const APPLIED: &str = "SELECT count(*) FROM {schema}idempotency_migrations WHERE version = $1";
pub(crate) const RECORD_MIGRATION: &str = "INSERT INTO {schema}idempotency_migrations (version) VALUES ($1)";
