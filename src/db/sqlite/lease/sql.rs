//! The texts.

use super::super::sql::clock;

/// The row that the statement is about. Parameters: 1 scope, 2 key, 3 endpoint.
macro_rules! row {
    () => {
        "scope = ?1 AND id_key = ?2 AND endpoint = ?3"
    };
}

/// Retention counts from acceptance and never ends before settle + 60 s (H44).
macro_rules! settled {
    ($retention:literal, $answer:literal) => {
        concat!(
            "state = 1, held = 0, answer = ",
            $answer,
            ", settled_at = ",
            clock!(),
            ", locked_until = ",
            clock!(),
            ", checkpoint_step = NULL, checkpoint = NULL, expires_at = max(accepted_at + ",
            $retention,
            ", ",
            clock!(),
            " + 60000000)"
        )
    };
}

/// Prolongs the lease; a row never expires under its lease.
macro_rules! prolonged {
    ($lease:literal) => {
        concat!(
            "locked_until = max(locked_until, ",
            clock!(),
            " + ",
            $lease,
            "), expires_at = max(expires_at, ",
            clock!(),
            " + ",
            $lease,
            ")"
        )
    };
}

/// The row, expired or not.
pub(super) const LOOK: &str = concat!(
    "SELECT state, fingerprint, token, fence, attempt, held, answer, checkpoint_step, checkpoint, expires_at <= ",
    clock!(),
    " AS expired, locked_until <= ",
    clock!(),
    " AS ended FROM idempotency_leases WHERE ",
    row!()
);

/// Parameters: 1 scope, 2 key, 3 endpoint, 4 fingerprint, 5 token, 6 held, 7 lease and 8 retention.
pub(super) const INSERT: &str = concat!(
    "INSERT INTO idempotency_leases \
        (scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held, \
         locked_until, accepted_at, expires_at) \
     SELECT ?1, ?2, ?3, 0, ?4, ?5, moment.at, 1, ?6, moment.at + ?7, moment.at, moment.at + max(?7, ?8) FROM (SELECT ",
    clock!(),
    " AS at) AS moment WHERE true ON CONFLICT (scope, id_key, endpoint) DO NOTHING RETURNING fence"
);

/// Parameters: as above, 9 the token and 10 the fence that were seen.
macro_rules! take {
    ($set:expr, $condition:expr) => {
        concat!(
            "UPDATE idempotency_leases SET state = 0, fingerprint = ?4, token = ?5, held = ?6, fence = max(fence + 1, ",
            clock!(),
            "), locked_until = ",
            clock!(),
            " + ?7, settled_at = NULL, answer = NULL, ",
            $set,
            " WHERE ",
            row!(),
            " AND token = ?9 AND fence = ?10 AND ",
            $condition,
            " RETURNING fence, attempt, checkpoint_step, checkpoint"
        )
    };
}

/// As the next attempt at the same operation.
pub(super) const TAKE_OVER: &str = take!(
    concat!("attempt = attempt + 1, expires_at = max(accepted_at + ?8, ", clock!(), " + ?7)"),
    concat!("state = 0 AND held = 0 AND locked_until <= ", clock!())
);

/// As the first attempt at a new one (H24).
pub(super) const TAKE_AFRESH: &str = take!(
    concat!(
        "attempt = 1, checkpoint_step = NULL, checkpoint = NULL, accepted_at = ",
        clock!(),
        ", expires_at = ",
        clock!(),
        " + max(?7, ?8)"
    ),
    concat!("expires_at <= ", clock!())
);

/// What the owner of a row does. Parameters: 1 scope, 2 key, 3 endpoint, 4 token, then those of the change.
macro_rules! change {
    ($set:expr) => {
        concat!("UPDATE idempotency_leases SET ", $set, " WHERE ", row!(), " AND token = ?4 AND state = 0")
    };
}

pub(super) const RENEW: &str = change!(prolonged!("?5"));
pub(super) const DISPATCH: &str = change!("held = ?5");
pub(super) const SETTLE: &str = change!(settled!("?5", "?6"));
/// The row stays, so that the next fence is larger whatever becomes of the clock.
pub(super) const ABANDON: &str = change!(
    "token = ?5, held = 0, locked_until = 0, \
     expires_at = CASE WHEN checkpoint_step IS NULL THEN 0 ELSE expires_at END"
);
pub(super) const STOP: &str = change!("locked_until = 0");
/// In the handler's transaction, as [`RENEW`] is too. Parameters: 5 lease, 6 step, 7 state.
pub(super) const CHECKPOINT: &str = change!(concat!("checkpoint_step = ?6, checkpoint = ?7, ", prolonged!("?5")));

/// In the handler's transaction: writes a row that cannot be committed where the caller is not the owner any more.
/// Takes the write lock in any case, so that nobody can become the owner while the transaction is open.
pub(super) const END_IF_LOST: &str = concat!(
    "INSERT INTO idempotency_lost_leases (never) SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM idempotency_leases WHERE ",
    row!(),
    " AND token = ?4 AND state = 0)"
);
/// Without them the row of [`END_IF_LOST`] could be committed.
pub(super) const FOREIGN_KEYS: &str = "PRAGMA foreign_keys";

pub(super) const STANDING: &str = concat!("SELECT state FROM idempotency_leases WHERE ", row!(), " AND token = ?4");

macro_rules! search {
    ($condition:expr) => {
        concat!(
            "SELECT scope, id_key, endpoint, state, token, fence, attempt, held, answer, checkpoint_step, ",
            clock!(),
            " - accepted_at AS age, expires_at - ",
            clock!(),
            " AS expires_in, locked_until - ",
            clock!(),
            " AS lease_left FROM idempotency_leases WHERE expires_at > ",
            clock!(),
            " AND ",
            $condition
        )
    };
}

pub(super) const FIND: &str = search!("scope = ?1 AND id_key = ?2 AND (?3 IS NULL OR endpoint = ?3) ORDER BY endpoint");
/// Parameters: 1 age, 2 limit.
pub(super) const STUCK: &str = search!(concat!(
    "state = 0 AND (locked_until <= ",
    clock!(),
    " OR accepted_at <= ",
    clock!(),
    " - ?1) ORDER BY accepted_at LIMIT ?2"
));

/// A row that nobody runs. Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 fence, then those of the change.
macro_rules! stopped {
    () => {
        concat!(row!(), " AND token = ?4 AND fence = ?5 AND state = 0 AND locked_until <= ", clock!())
    };
}

pub(super) const RELEASE: &str = concat!("UPDATE idempotency_leases SET held = 0 WHERE ", stopped!());
pub(super) const SETTLE_AS: &str =
    concat!("UPDATE idempotency_leases SET ", settled!("?6", "?7"), " WHERE ", stopped!());
/// Parameters: as above, 6 its state.
pub(super) const FORGET: &str = concat!(
    "DELETE FROM idempotency_leases WHERE ",
    row!(),
    " AND token = ?4 AND fence = ?5 AND state = ?6 AND (state = 1 OR locked_until <= ",
    clock!(),
    ")"
);

/// Returns how long each had been expired, in microseconds. Parameter: 1 limit.
pub(super) const PURGE: &str = concat!(
    "DELETE FROM idempotency_leases WHERE rowid IN (SELECT rowid FROM idempotency_leases WHERE expires_at <= ",
    clock!(),
    " ORDER BY expires_at LIMIT ?1) RETURNING ",
    clock!(),
    " - expires_at"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::sqlite::plans::assert_searches;

    // S31, case O02: a purge reads what has expired and no more.
    #[tokio::test]
    async fn a_purge_goes_by_the_time_index() {
        assert_searches(PURGE, 1, "idempotency_leases_expires_at").await;
    }

    // S3, S5, H44; cases L17 and L18: what changes a row compares a token, and every instant is made of SQLite's clock.
    #[test]
    fn every_change_compares_a_token_and_reads_the_databases_clock() {
        for text in [TAKE_OVER, TAKE_AFRESH, RENEW, SETTLE, CHECKPOINT, SETTLE_AS, FORGET] {
            assert!(text.contains("token = ?4") || text.contains("token = ?9"), "{text}");
            assert!(text.contains(clock!()), "{text}");
        }
        // These write no instant but the first one of all.
        for text in [DISPATCH, ABANDON, STOP, RELEASE, END_IF_LOST] {
            assert!(text.contains("token = ?4"), "{text}");
        }
        for text in [INSERT, PURGE, LOOK] {
            assert!(text.contains(clock!()), "{text}");
        }
    }
}
