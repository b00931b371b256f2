//! What operators ask and change (S8).

/// What an operator sees of a live record.
macro_rules! entry {
    ($condition:literal) => {
        concat!(
            "SELECT scope, id_key, endpoint, state, token, answer, \
                (extract(epoch FROM clock_timestamp() - accepted_at) * 1000000)::int8 AS age, \
                (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::int8 AS expires_in \
             FROM {schema}idempotency_keys WHERE expires_at > clock_timestamp() AND ",
            $condition
        )
    };
}

/// Parameters: 1 scope, 2 key, 3 endpoint or NULL.
pub(crate) const FIND: &str =
    entry!("scope = $1 AND id_key = $2 AND ($3::text IS NULL OR endpoint = $3) ORDER BY endpoint");

/// Records that wait for a person, the oldest first. Parameter: 1 limit.
pub(crate) const STUCK: &str = entry!("state IN (0, 2) ORDER BY accepted_at LIMIT $1");

/// Deletes a record that nobody runs: it tries K, which every attempt holds, and for a moment whoever asks for a record.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 K, 5 token, 6 the states that it may be in.
pub(crate) const FORGET: &str = r#"
WITH k AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($4) AS got
), changed AS (
    DELETE FROM {schema}idempotency_keys USING k
    WHERE k.got AND scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $5 AND state = ANY ($6)
        AND expires_at > clock_timestamp()
    RETURNING 1
)
SELECT (SELECT got FROM k) AS got, EXISTS (SELECT FROM changed) AS changed
"#;

/// Gives a record an answer that nobody has settled. Parameters: as above, 7 retention in microseconds, 8 answer.
pub(crate) const SETTLE_AS: &str = r#"
WITH k AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($4) AS got
), changed AS (
    UPDATE {schema}idempotency_keys SET
        state = 1, answer = $8, claim_xid = NULL, settled_at = clock_timestamp(),
        expires_at = greatest(accepted_at + $7 * interval '1 microsecond', clock_timestamp() + interval '60 seconds')
    FROM k
    WHERE k.got AND scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $5 AND state = ANY ($6)
        AND expires_at > clock_timestamp()
    RETURNING 1
)
SELECT (SELECT got FROM k) AS got, EXISTS (SELECT FROM changed) AS changed
"#;

/// When a session's transaction began, in microseconds since the epoch; 0 where the role may not see it.
macro_rules! begun {
    () => {
        "coalesce(extract(epoch FROM session.xact_start) * 1000000, 0)::int8"
    };
}

/// What there is to tell of a session.
macro_rules! holder {
    ($condition:literal) => {
        concat!(
            "SELECT session.pid, host(session.client_addr) AS client, \
                coalesce(extract(epoch FROM clock_timestamp() - session.xact_start) * 1000000, 0)::int8 AS open_for, ",
            begun!(),
            " AS begun \
             FROM pg_locks AS held JOIN pg_stat_activity AS session ON session.pid = held.pid \
             WHERE held.granted AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                AND ",
            $condition
        )
    };
}

/// Who holds K: an attempt that is running, where there is no record. Parameter: 1 K.
pub(crate) const HOLDER: &str = holder!(
    "held.locktype = 'advisory' AND held.objsubid = 1 \
        AND held.classid::int8 = (($1 >> 32) & 4294967295) AND held.objid::int8 = ($1 & 4294967295)"
);

/// Who has claimed something and not ended yet, the oldest first: a claim locks its table so until it ends. Since when is not
/// shown to every role: where it is not, it may be long ago. Parameters: 1 microseconds, 2 limit.
pub(crate) const HOLDERS: &str = holder!(
    "held.locktype = 'relation' AND held.mode = 'RowExclusiveLock' \
        AND held.relation = '{schema}idempotency_keys'::regclass AND session.pid <> pg_backend_pid() \
        AND coalesce(session.xact_start <= clock_timestamp() - $1 * interval '1 microsecond', true) \
     ORDER BY session.xact_start LIMIT $2"
);

/// Ends a session that is still in the transaction which has claimed something, and no other.
/// Parameters: 1 pid, 2 when that transaction began.
pub(crate) const TERMINATE: &str = concat!(
    "SELECT coalesce(bool_or(pg_terminate_backend(held.pid)), false) \
     FROM pg_locks AS held JOIN pg_stat_activity AS session ON session.pid = held.pid \
     WHERE held.pid = $1 AND ",
    begun!(),
    " = $2 AND held.granted AND held.locktype = 'relation' AND held.mode = 'RowExclusiveLock' \
        AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
        AND held.relation = '{schema}idempotency_keys'::regclass"
);
