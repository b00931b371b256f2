//! Every SQL text for MariaDB, 10.6 or newer, and MySQL, 8.0 or newer.
//!
//! Texts of several statements are sent as one packet; the server stops at the first one that fails. `{mark}` is the
//! claim's own random name: its echo shows that an answer belongs to this packet. `{get_lock}` and `{release_lock}` are
//! empty where no named lock is used.

/// A transaction that a handler is lent. Behind it the session is read-only and commits nothing by itself: whatever ends
/// the transaction early, a deadlock of the handler's or its own ROLLBACK, what is written afterwards is refused or rolled
/// back. So either the claim's row was committed by the handler, or nothing was kept at all. Both are needed: after a
/// deadlock the server begins one more transaction that may write.
///
/// The isolation level is that of the next transaction alone. The session's modes come after BEGIN, which may fail.
macro_rules! begin {
    ($level:literal) => {
        concat!(
            "SET TRANSACTION ISOLATION LEVEL ",
            $level,
            "; START TRANSACTION READ WRITE; SAVEPOINT idempotency_claim; SET SESSION TRANSACTION READ ONLY; \
             SET autocommit = 0{bound}{get_lock}"
        )
    };
}

pub(crate) const BEGIN_READ_COMMITTED: &str = begin!("READ COMMITTED");
pub(crate) const BEGIN_REPEATABLE_READ: &str = begin!("REPEATABLE READ");
pub(crate) const BEGIN_SERIALIZABLE: &str = begin!("SERIALIZABLE");

/// Bounds how long a session may say nothing before the server ends it, and lifts the bound again.
pub(crate) const BOUND: &str = "; SET @idempotency_wait = @@SESSION.wait_timeout; \
     SET SESSION wait_timeout = LEAST(@@SESSION.wait_timeout, {seconds})";
pub(crate) const UNBOUND: &str = "; SET SESSION wait_timeout = COALESCE(@idempotency_wait, @@SESSION.wait_timeout)";

pub(crate) const GET_LOCK: &str = "; DO GET_LOCK('idem:{lock}', 0)";
pub(crate) const RELEASE_LOCK: &str = "; DO RELEASE_LOCK('idem:{lock}')";

/// Ends whatever the session is in, as if it had never been lent.
pub(crate) const LEAVE: &str = "ROLLBACK; SET autocommit = 1; SET SESSION TRANSACTION READ WRITE{unbound}{release_lock}; SELECT 'left {mark}' AS mark";
/// The same for a transaction that must still be the claim's own.
pub(crate) const UNDO: &str = "RELEASE SAVEPOINT idempotency_claim; ROLLBACK; SET autocommit = 1; SET SESSION TRANSACTION READ WRITE{unbound}{release_lock}; \
     SELECT 'undone {mark}' AS mark";
/// Commits a transaction that must still be the claim's own.
pub(crate) const COMMIT: &str = "RELEASE SAVEPOINT idempotency_claim; COMMIT; SET autocommit = 1; SET SESSION TRANSACTION READ WRITE{unbound}{release_lock}; \
     SELECT 'committed {mark}' AS mark";
/// Undoes the claim and what came after it; the transaction and the named lock stay.
pub(crate) const UNDO_WRITES: &str = "ROLLBACK TO SAVEPOINT idempotency_claim";
/// Ends a session that can no longer be trusted: this one, and one of which `{id}` is known.
pub(crate) const KILL: &str = "KILL CONNECTION_ID()";
pub(crate) const KILL_OTHER: &str = "KILL CONNECTION {id}";

pub(crate) const ROLLBACK: &str = "ROLLBACK";
/// Before a claim is asked again in the same session. The server counts how often a session has taken a named lock.
pub(crate) const ROLLBACK_AND_RELEASE: &str = "ROLLBACK{release_lock}";
/// From the claim's transaction to one that sees what is not committed, and to one that does not.
pub(crate) const REOPEN_DIRTY: &str =
    "ROLLBACK; SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; START TRANSACTION READ ONLY";
pub(crate) const REOPEN_COMMITTED: &str =
    "ROLLBACK; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ ONLY";

/// A transaction of the store's own, which no handler gets.
pub(crate) const BEGIN_OWN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ WRITE";
/// The level of the next transaction of the session, be it one statement.
pub(crate) const NEXT_READS_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
pub(crate) const NEXT_READS_UNCOMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
/// Uses it up.
pub(crate) const NOTHING_FOLLOWS: &str = "START TRANSACTION READ ONLY; ROLLBACK";
pub(crate) const COMMIT_OWN: &str = "COMMIT";

/// Ends a transaction and its session, so that nothing of it is kept and nothing follows it, whoever goes on with it. The
/// KILL alone would do; the modes before it hold where something between us and the server swallows it.
pub(crate) const END_FOR_GOOD: &str =
    "SET SESSION TRANSACTION READ ONLY; SET autocommit = 0; ROLLBACK; KILL CONNECTION_ID()";

/// MariaDB: before a statement that gives up (1205) where it would wait, for a row as well as for a table's definition.
macro_rules! no_wait {
    () => {
        "SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR "
    };
}
pub(crate) const NO_WAIT: &str = no_wait!();

macro_rules! upsert {
    ($values:literal) => {
        concat!(
            no_wait!(),
            "INSERT INTO {schema}idempotency_keys (scope, id_key, endpoint, state, fingerprint, token, accepted_at, settled_at, expires_at, answer) ",
            $values,
            " ON DUPLICATE KEY UPDATE
    state = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(state), state),
    fingerprint = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(fingerprint), fingerprint),
    token = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(token), token),
    accepted_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(accepted_at), accepted_at),
    settled_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(settled_at), settled_at),
    answer = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(answer), answer),
    expires_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(expires_at), expires_at)
RETURNING token, fingerprint, state, answer, CONNECTION_ID() AS session"
        )
    };
}

/// MariaDB: inserts, takes over an expired row, or leaves a live one alone, and returns the row as it is then: whose
/// token it holds tells which. Each column asks for the expiry, which therefore changes last. The count of affected
/// rows tells nothing: sqlx asks the server to count found rows.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 fingerprint, 5 token, 6 retention in microseconds.
pub(crate) const CLAIM_NO_WAIT: &str =
    upsert!("VALUES (?, ?, ?, 0, ?, ?, UTC_TIMESTAMP(6), NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, NULL)");

/// MariaDB: a finished record instead of the claim's row, in the same way.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 fingerprint, 5 token, 6 accepted and 7 accepted again (microseconds since
/// the epoch), 8 retention in microseconds, 9 answer.
pub(crate) const FINISH_NO_WAIT: &str = upsert!(
    "VALUES (?, ?, ?, 1, ?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6),
        GREATEST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND + INTERVAL ? MICROSECOND,
            UTC_TIMESTAMP(6) + INTERVAL 60 SECOND), ?)"
);

/// MySQL: inserts if this session holds the named lock. One row: claimed. None: somebody else holds the lock. Error
/// 1062: there is a row. The session's number comes back as the last inserted id.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 fingerprint, 5 token, 6 retention in microseconds, 7 name of the lock.
pub(crate) const CLAIM_LOCKED: &str = r#"
INSERT INTO {schema}idempotency_keys (scope, id_key, endpoint, state, fingerprint, token, accepted_at, expires_at)
SELECT CAST(? AS BINARY), CAST(? AS BINARY), CAST(? AS BINARY), 0, CAST(? AS BINARY), CAST(? AS BINARY),
    UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
FROM DUAL WHERE IS_USED_LOCK(?) = LAST_INSERT_ID(CONNECTION_ID())
"#;

/// MySQL: takes an expired row over. No other session tries while this one holds the named lock.
/// Parameters: 1 fingerprint, 2 token, 3 retention in microseconds, 4 scope, 5 key, 6 endpoint.
pub(crate) const TAKE_OVER: &str = r#"
UPDATE {schema}idempotency_keys SET
    state = LAST_INSERT_ID(CONNECTION_ID()) * 0, fingerprint = ?, token = ?, accepted_at = UTC_TIMESTAMP(6), settled_at = NULL, answer = NULL,
    expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE scope = ? AND id_key = ? AND endpoint = ? AND expires_at <= UTC_TIMESTAMP(6)
"#;

/// MySQL: a finished record in place of the claim's row. Error 1062: an expired row was there before.
/// Parameters as for [`FINISH_NO_WAIT`].
pub(crate) const FINISH_LOCKED: &str = r#"
INSERT INTO {schema}idempotency_keys
    (scope, id_key, endpoint, state, fingerprint, token, accepted_at, settled_at, expires_at, answer)
VALUES (?, ?, ?, 1, ?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6),
    GREATEST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND + INTERVAL ? MICROSECOND,
        UTC_TIMESTAMP(6) + INTERVAL 60 SECOND), ?)
"#;

/// Deletes a row if it has expired. Parameters: 1 scope, 2 key, 3 endpoint.
pub(crate) const DELETE_EXPIRED: &str = r#"
DELETE FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ? AND expires_at <= UTC_TIMESTAMP(6)
"#;

/// The row, and whether it has expired. Parameters: 1 scope, 2 key, 3 endpoint.
pub(crate) const FIND: &str = r#"
SELECT state, fingerprint, answer, expires_at <= UTC_TIMESTAMP(6) AS expired FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ?
"#;
/// Whose row it is, for a reader of what is not committed: the answer is left out, since a large one is stored in pages
/// of its own which may not be there yet.
pub(crate) const PEEK: &str = r#"
SELECT state, fingerprint, expires_at <= UTC_TIMESTAMP(6) AS expired FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ?
"#;

/// MariaDB: settles and commits in one round trip, or fails: 1305 where the claim's transaction is not open any more.
/// Parameters: 1 answer, 2 retention in microseconds, 3 scope, 4 key, 5 endpoint, 6 token, 7 mark.
pub(crate) const SETTLE_AND_COMMIT: &str = r#"
BEGIN NOT ATOMIC
    RELEASE SAVEPOINT idempotency_claim;
    UPDATE {schema}idempotency_keys SET
        state = 1, answer = ?, settled_at = UTC_TIMESTAMP(6),
        expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 60 SECOND)
    WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0;
    IF ROW_COUNT() <> 1 THEN
        SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1305, MESSAGE_TEXT = 'the row of the claim is gone';
    END IF;
    COMMIT;
    SET autocommit = 1;
    SET SESSION TRANSACTION READ WRITE;
    SELECT ? AS mark;
END
"#;

/// Stores the answer in the claim's own transaction. The found rows are counted.
/// Parameters: 1 answer, 2 retention in microseconds, 3 scope, 4 key, 5 endpoint, 6 token.
pub(crate) const SETTLE: &str = r#"
UPDATE {schema}idempotency_keys SET
    state = 1, answer = ?, settled_at = UTC_TIMESTAMP(6),
    expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 60 SECOND)
WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0
"#;

/// When the claim was accepted, in microseconds since the epoch; no row where its transaction has lost it.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const ACCEPTED: &str = r#"
SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', accepted_at) FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0
"#;

/// Closes the key of a claim whose handler has committed it. The found rows are counted.
/// Parameters: 1 retention in microseconds, 2 scope, 3 key, 4 endpoint, 5 token.
pub(crate) const ORPHAN: &str = r#"
UPDATE {schema}idempotency_keys SET
    state = 2, settled_at = UTC_TIMESTAMP(6),
    expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 60 SECOND)
WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0
"#;

/// Whether this claim's answer was committed after all. Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const FIND_OWN: &str = r#"
SELECT 1 FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 1
"#;

/// Locks expired rows, and steps over those that a claim is taking over. Parameter: 1 limit.
pub(crate) const LOCK_EXPIRED: &str = r#"
SELECT scope, id_key, endpoint, TIMESTAMPDIFF(MICROSECOND, expires_at, UTC_TIMESTAMP(6)) FROM {schema}idempotency_keys
WHERE expires_at <= UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED
"#;

/// Live records as operators see them. Without its answer where it may not be committed.
macro_rules! entry {
    ($answer:literal, $condition:literal) => {
        concat!(
            "SELECT scope, id_key, endpoint, state, token, ",
            $answer,
            " AS answer, TIMESTAMPDIFF(MICROSECOND, accepted_at, UTC_TIMESTAMP(6)) AS age, \
             TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) AS expires_in \
             FROM {schema}idempotency_keys WHERE expires_at > UTC_TIMESTAMP(6) AND ",
            $condition
        )
    };
}

/// Parameters: 1 scope, 2 key, 3 endpoint or nothing, and 4 once more.
pub(crate) const FIND_ENTRIES: &str =
    entry!("answer", "scope = ? AND id_key = ? AND (? IS NULL OR endpoint = ?) ORDER BY endpoint");
pub(crate) const PEEK_ENTRIES: &str =
    entry!("NULL", "scope = ? AND id_key = ? AND (? IS NULL OR endpoint = ?) ORDER BY endpoint");
/// Records that wait for a person, the oldest first. Parameters: 1 age in microseconds, 2 limit.
pub(crate) const STUCK_ENTRIES: &str = entry!(
    "answer",
    "state IN (0, 2) AND accepted_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY accepted_at LIMIT ?"
);
/// Those that run, among them. Parameters as above.
pub(crate) const PEEK_STUCK_ENTRIES: &str = entry!(
    "NULL",
    "state IN (0, 2) AND accepted_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY accepted_at LIMIT ?"
);

/// Before an operator's change where no statement has a wait of its own. Parameters: 1 scope, 2 key, 3 endpoint.
pub(crate) const LOCK: &str = "SELECT 1 FROM {schema}idempotency_keys \
    WHERE scope = ? AND id_key = ? AND endpoint = ? FOR UPDATE NOWAIT";
/// Frees a key whose handler has committed it. A running row that can be locked is a committed one.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const RELEASE: &str = "{no_wait}DELETE FROM {schema}idempotency_keys \
    WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state IN (0, 2)";
/// The same for completed ones too.
pub(crate) const FORGET: &str = "{no_wait}DELETE FROM {schema}idempotency_keys \
    WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ?";
/// Parameters: 1 answer, 2 retention in microseconds, 3 scope, 4 key, 5 endpoint, 6 token.
pub(crate) const SETTLE_AS: &str = "{no_wait}UPDATE {schema}idempotency_keys SET \
    state = 1, answer = ?, settled_at = UTC_TIMESTAMP(6), \
    expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 60 SECOND) \
    WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state IN (0, 2)";

/// What a store must know of its server.
pub(crate) const INSPECT: &str = "SHOW VARIABLES WHERE Variable_name IN
    ('version', 'innodb_rollback_on_timeout', 'read_only', 'innodb_read_only', 'tx_read_only', 'transaction_read_only', 'autocommit',
     'tx_isolation', 'transaction_isolation')";
pub(crate) const DATABASE: &str = "SELECT DATABASE()";

pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/mysql/0001_keys.sql"),
    include_str!("../../../migrations/mysql/0002_leases.sql"),
    include_str!("../../../migrations/mysql/0003_inbox.sql"),
    include_str!("../../../migrations/mysql/0004_outbox.sql"),
];
pub(crate) const CREATE_SCHEMA: &str = "CREATE DATABASE IF NOT EXISTS {schema_name}";
/// Parameter: 1 name.
pub(crate) const SCHEMA_EXISTS: &str = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?";
pub(crate) const HISTORY: &str = r#"
CREATE TABLE IF NOT EXISTS {schema}idempotency_migrations (
    version    INT NOT NULL PRIMARY KEY,
    applied_at DATETIME(6) NOT NULL
) ENGINE = InnoDB
"#;
/// One migrating process at a time. The connection is closed afterwards, and the lock goes with it.
/// Parameters: 1 name, 2 seconds.
pub(crate) const LOCK_MIGRATIONS: &str = "SELECT GET_LOCK(?, ?)";
/// When the first row of a table has expired, or now. A lease that was given back expired at the beginning of time.
macro_rules! first_expired {
    ($table:literal) => {
        concat!(
            "COALESCE((SELECT expires_at FROM {schema}",
            $table,
            " WHERE expires_at > '2000-01-01' ORDER BY expires_at LIMIT 1), UTC_TIMESTAMP(6))"
        )
    };
}

/// Whether something has expired that a purger would have taken long ago (O01).
pub(crate) const UNPURGED: &str = concat!(
    "SELECT LEAST(",
    first_expired!("idempotency_keys"),
    ", ",
    first_expired!("idempotency_leases"),
    ", ",
    first_expired!("idempotency_inbox"),
    ") < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"
);
pub(crate) const LOCK_PURGE: &str = "SELECT GET_LOCK(?, 0)";
pub(crate) const FREE_PURGE: &str = "SELECT RELEASE_LOCK(?)";
pub(crate) const APPLIED: &str = "SELECT COUNT(*) FROM {schema}idempotency_migrations WHERE version = ?";
pub(crate) const RECORD_MIGRATION: &str =
    "INSERT INTO {schema}idempotency_migrations (version, applied_at) VALUES (?, UTC_TIMESTAMP(6))";
