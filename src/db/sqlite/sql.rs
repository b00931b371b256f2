//! Every SQL text for SQLite, 3.42 or newer.

/// SQLite's clock, in microseconds of which the last three digits are noughts. It stands still within a statement.
macro_rules! clock {
    () => {
        "(CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000)"
    };
}

pub(crate) use clock;

/// Always at once a writer: a transaction that reads first and is refused when it wants to write cannot wait for its
/// turn (case C22).
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";
/// Opened inside BEGIN and released by settle: a handler's own COMMIT or ROLLBACK closes it, which is how it shows
/// (H29).
pub(crate) const SAVEPOINT: &str = "SAVEPOINT idempotency_claim";
pub(crate) const RELEASE: &str = "RELEASE SAVEPOINT idempotency_claim";
pub(crate) const ROLLBACK: &str = "ROLLBACK";
/// Our own wait for the lock is fairer than SQLite's, which is off meanwhile.
pub(crate) const NO_BUSY_TIMEOUT: &str = "PRAGMA busy_timeout = 0";

pub(crate) const FILE: &str = "SELECT file FROM pragma_database_list WHERE name = 'main'";
pub(crate) const JOURNAL_MODE: &str = "PRAGMA journal_mode";
pub(crate) const LOCKING_MODE: &str = "PRAGMA locking_mode";
pub(crate) const SYNCHRONOUS: &str = "PRAGMA synchronous";
pub(crate) const BUSY_TIMEOUT: &str = "PRAGMA busy_timeout";
/// NULL before 3.42.
pub(crate) const HAS_CLOCK: &str = "SELECT unixepoch('subsec') IS NOT NULL";

/// The live row. An announced one lives as long as its owner, whatever the clock says.
/// Parameters: 1 scope, 2 key, 3 endpoint.
pub(crate) const LOOK: &str = concat!(
    "SELECT state, fingerprint, token, owner, answer FROM idempotency_keys \
     WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND (state = 3 OR expires_at > ",
    clock!(),
    ")"
);

/// Announces an operation where there is no row, an expired one, or the announcement of a dead owner (H24, S3).
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 fingerprint, 5 token, 6 owner, 7 retention, 8 the dead owner's token.
pub(crate) const ANNOUNCE: &str = concat!(
    "INSERT INTO idempotency_keys AS held \
        (scope, id_key, endpoint, state, fingerprint, token, owner, accepted_at, expires_at) \
     SELECT ?1, ?2, ?3, 3, ?4, ?5, ?6, moment.at, moment.at + ?7 FROM (SELECT ",
    clock!(),
    " AS at) AS moment WHERE true \
     ON CONFLICT (scope, id_key, endpoint) DO UPDATE SET \
        state = 3, fingerprint = excluded.fingerprint, token = excluded.token, owner = excluded.owner, \
        accepted_at = excluded.accepted_at, settled_at = NULL, expires_at = excluded.expires_at, answer = NULL \
     WHERE (held.state <> 3 AND held.expires_at <= excluded.accepted_at) OR (held.state = 3 AND held.token = ?8)"
);

/// From announced to running, inside the handler's transaction. Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const RUN: &str = "UPDATE idempotency_keys SET state = 0 \
    WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 3";

/// Stores the answer. Retention counts from acceptance and never ends before settle + 60 s (H44).
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 retention, 6 answer, 7 the state it must be in.
pub(crate) const SETTLE: &str = concat!(
    "UPDATE idempotency_keys SET state = 1, owner = NULL, answer = ?6, settled_at = ",
    clock!(),
    ", expires_at = max(accepted_at + ?5, ",
    clock!(),
    " + 60000000) WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = ?7"
);

/// Closes the key until a person looks (H29). Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 retention.
pub(crate) const ORPHAN: &str = concat!(
    "UPDATE idempotency_keys SET state = 2, owner = NULL, settled_at = ",
    clock!(),
    ", expires_at = max(accepted_at + ?5, ",
    clock!(),
    " + 60000000) WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state IN (0, 3)"
);

/// Frees the key (S16). Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const TAKE_BACK: &str = "DELETE FROM idempotency_keys \
    WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 3";

/// Where the claim's own row stands. Parameters: 1 scope, 2 key, 3 endpoint, 4 token.
pub(crate) const FIND_OWN: &str = "SELECT state FROM idempotency_keys \
    WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4";

/// What an operator sees of a live record. An announced one lives as long as its owner, whatever the clock says.
macro_rules! entry {
    ($condition:literal) => {
        concat!(
            "SELECT scope, id_key, endpoint, state, token, owner, answer, ",
            clock!(),
            " - accepted_at AS age, expires_at - ",
            clock!(),
            " AS expires_in FROM idempotency_keys WHERE (state = 3 OR expires_at > ",
            clock!(),
            ") AND ",
            $condition
        )
    };
}

/// Parameters: 1 scope, 2 key, 3 endpoint or NULL.
pub(crate) const FIND: &str = entry!("scope = ?1 AND id_key = ?2 AND (?3 IS NULL OR endpoint = ?3) ORDER BY endpoint");

/// Records without an answer, the oldest first. Parameter: 1 limit.
pub(crate) const UNSETTLED: &str = entry!("state <> 1 ORDER BY accepted_at LIMIT ?1");

/// Deletes one record. Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 the state it must be in.
pub(crate) const FORGET: &str = "DELETE FROM idempotency_keys \
    WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = ?5";

/// Returns how long each had been expired, in microseconds. Parameter: 1 limit.
pub(crate) const PURGE: &str = concat!(
    "DELETE FROM idempotency_keys WHERE rowid IN \
     (SELECT rowid FROM idempotency_keys WHERE expires_at <= ",
    clock!(),
    " AND state <> 3 ORDER BY expires_at LIMIT ?1) RETURNING ",
    clock!(),
    " - expires_at"
);

/// Owners of announcements that would have expired: are they alive? Parameter: 1 limit.
pub(crate) const OLD_OWNERS: &str = concat!(
    "SELECT DISTINCT owner FROM \
     (SELECT owner FROM idempotency_keys WHERE expires_at <= ",
    clock!(),
    " AND state = 3 ORDER BY expires_at LIMIT ?1)"
);

/// What a dead owner has left behind. Parameters: 1 limit, 2 owner.
pub(crate) const PURGE_DEAD: &str = concat!(
    "DELETE FROM idempotency_keys WHERE rowid IN \
     (SELECT rowid FROM idempotency_keys WHERE expires_at <= ",
    clock!(),
    " AND state = 3 AND owner = ?2 ORDER BY expires_at LIMIT ?1)"
);

/// When the first row of a table has expired, or now. A lease that was given back expired at the beginning of time, and an
/// announcement may outlive its hour.
macro_rules! first_expired {
    ($table:literal, $but:literal) => {
        concat!(
            "COALESCE((SELECT expires_at FROM ",
            $table,
            " WHERE expires_at > 946684800000000",
            $but,
            " ORDER BY expires_at LIMIT 1), ",
            clock!(),
            ")"
        )
    };
}

/// Whether something has expired that a purger would have taken long ago (O01).
pub(crate) const UNPURGED: &str = concat!(
    "SELECT min(",
    first_expired!("idempotency_keys", " AND state <> 3"),
    ", ",
    first_expired!("idempotency_leases", ""),
    ", ",
    first_expired!("idempotency_inbox", ""),
    ") < ",
    clock!(),
    " - 86400000000"
);

pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_keys.sql"),
    include_str!("../../../migrations/sqlite/0002_leases.sql"),
    include_str!("../../../migrations/sqlite/0003_inbox.sql"),
    include_str!("../../../migrations/sqlite/0004_outbox.sql"),
];
pub(crate) const HISTORY: &str = concat!(
    "CREATE TABLE IF NOT EXISTS idempotency_migrations (\
        version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL DEFAULT ",
    clock!(),
    ") STRICT"
);
pub(crate) const APPLIED: &str = "SELECT count(*) FROM idempotency_migrations WHERE version = ?1";
pub(crate) const RECORD_MIGRATION: &str = "INSERT INTO idempotency_migrations (version) VALUES (?1)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sqlite::plans::assert_searches;

    // S31, case O02: a purge reads what has expired and no more.
    #[tokio::test]
    async fn a_purge_goes_by_the_time_index() {
        assert_searches(PURGE, 1, "idempotency_keys_expires_at").await;
    }
}
