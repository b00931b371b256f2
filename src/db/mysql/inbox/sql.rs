//! The texts. `{no_wait}` makes a statement give up (1205) where it would wait, on MariaDB; on MySQL it is empty.

use crate::db::lease::texts;

/// The row that the statement is about. Parameters: consumer, source, id.
macro_rules! row {
    () => {
        "consumer = ? AND source = ? AND id = ?"
    };
}

/// The messages of a batch. One parameter.
macro_rules! asked {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (source VARCHAR(510) PATH '$[0]', id VARCHAR(510) PATH '$[1]', \
            token VARCHAR(32) PATH '$[2]', digest VARCHAR(64) PATH '$[3]')) AS asked"
    };
}

/// Makes a mark. A plain INSERT: who gets no error has made it, and error 1062 says that there is one. The count of
/// affected rows would tell nothing after an upsert: sqlx asks the server to count found rows, and everybody finds one.
/// Parameters: consumer, source, id, token, digest, retention.
const ACCEPT: &str = "{no_wait}INSERT INTO {schema}idempotency_inbox \
        (consumer, source, id, token, digest, accepted_at, expires_at) \
     VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)";

/// The same for a batch: all of them or, after an error, none. Parameters: consumer, retention, messages as JSON.
const ACCEPT_ALL: &str = concat!(
    "{no_wait}INSERT INTO {schema}idempotency_inbox (consumer, source, id, token, digest, accepted_at, expires_at) \
     SELECT CAST(? AS BINARY), UNHEX(asked.source), UNHEX(asked.id), UNHEX(asked.token), UNHEX(asked.digest), \
        UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND FROM ",
    asked!()
);

/// The mark as it is now, whatever the transaction's snapshot says: the INSERT that has met it has locked it. The server
/// reads it without a wait. Parameters: consumer, source, id.
const LOOK: &str =
    concat!("{no_wait}SELECT digest FROM {schema}idempotency_inbox WHERE ", row!(), " LOCK IN SHARE MODE");

/// The marks that this transaction can see, without a lock (which under SERIALIZABLE it takes all the same, and so gives up).
/// Parameters: messages as JSON, consumer.
const LOOK_ALL: &str = concat!(
    "{no_wait}SELECT UNHEX(asked.token) AS token, held.digest FROM ",
    asked!(),
    " STRAIGHT_JOIN {schema}idempotency_inbox AS held \
        ON held.consumer = ? AND held.source = UNHEX(asked.source) AND held.id = UNHEX(asked.id)"
);

/// MySQL: before an INSERT, which would wait there. An error where somebody is making the mark, or has locked it.
/// Parameters: consumer, source, id.
const LOCK: &str = concat!("SELECT digest FROM {schema}idempotency_inbox WHERE ", row!(), " FOR UPDATE NOWAIT");

/// The mark as this transaction sees it, without a lock. Parameters: consumer, source, id.
const SEE: &str = concat!("SELECT digest FROM {schema}idempotency_inbox WHERE ", row!());

/// Parameters: consumer, source, id, token.
const RETRACT: &str = concat!("DELETE FROM {schema}idempotency_inbox WHERE ", row!(), " AND token = ?");

/// Hits the delivery's own mark, or nothing (M4). The found rows are counted.
/// Parameters: retention, consumer, source, id, token.
const CONFIRM: &str = concat!(
    "UPDATE {schema}idempotency_inbox SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE ",
    row!(),
    " AND token = ?"
);

/// Parameters: consumer, source, id.
const FAILURES: &str = concat!("SELECT failures FROM {schema}idempotency_inbox_failures WHERE ", row!());

/// An upsert, by whose count of rows nothing is decided. Parameters: consumer, source, id, retention.
const COUNT_FAILURE: &str = "INSERT INTO {schema}idempotency_inbox_failures (consumer, source, id, failures, expires_at) \
     VALUES (?, ?, ?, 1, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) \
     ON DUPLICATE KEY UPDATE failures = failures + 1, expires_at = GREATEST(expires_at, VALUES(expires_at))";

/// Parameters: consumer, source, id.
const FORGET_FAILURES: &str = concat!("DELETE FROM {schema}idempotency_inbox_failures WHERE ", row!());

/// Locks expired rows, and steps over those that somebody looks at. Parameter: limit.
macro_rules! lock_expired {
    ($table:literal) => {
        concat!(
            "SELECT consumer, source, id, TIMESTAMPDIFF(MICROSECOND, expires_at, UTC_TIMESTAMP(6)) FROM {schema}",
            $table,
            " WHERE expires_at <= UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED"
        )
    };
}

/// Parameters: consumer, source, id.
macro_rules! delete_expired {
    ($table:literal) => {
        concat!("DELETE FROM {schema}", $table, " WHERE ", row!(), " AND expires_at <= UTC_TIMESTAMP(6)")
    };
}

pub(in crate::db::mysql) const LOCK_EXPIRED: &str = lock_expired!("idempotency_inbox");
const DELETE_EXPIRED: &str = delete_expired!("idempotency_inbox");
pub(in crate::db::mysql) const LOCK_EXPIRED_FAILURES: &str = lock_expired!("idempotency_inbox_failures");
const DELETE_EXPIRED_FAILURES: &str = delete_expired!("idempotency_inbox_failures");

texts! {
    accept: ACCEPT,
    accept_all: ACCEPT_ALL,
    look: LOOK,
    look_all: LOOK_ALL,
    lock: LOCK,
    see: SEE,
    retract: RETRACT,
    confirm: CONFIRM,
    failures: FAILURES,
    count_failure: COUNT_FAILURE,
    forget_failures: FORGET_FAILURES,
    lock_expired: LOCK_EXPIRED,
    delete_expired: DELETE_EXPIRED,
    lock_expired_failures: LOCK_EXPIRED_FAILURES,
    delete_expired_failures: DELETE_EXPIRED_FAILURES,
}

#[cfg(test)]
mod tests {
    use super::*;

    // M3: an upsert tells everybody that one row was found, and IGNORE hides who was first.
    #[test]
    fn nothing_is_decided_by_an_upsert() {
        for (name, text) in ALL {
            for foreign in ["ON DUPLICATE", "IGNORE", "REPLACE", "GET_LOCK"] {
                assert!(*name == "count_failure" || !text.contains(foreign), "{name} uses {foreign}");
            }
        }
    }

    // M3
    #[test]
    fn what_could_meet_a_rival_gives_up_at_once() {
        for (name, text) in ALL {
            if ["accept", "accept_all", "look", "look_all"].contains(name) {
                assert!(text.starts_with("{no_wait}"), "{name}");
            }
        }
        assert!(LOCK.ends_with("NOWAIT"));
    }
}
