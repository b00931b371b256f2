//! The texts. `{no_wait}` makes a statement give up (1205) where it would wait, on MariaDB; on MySQL it is empty, and the
//! row is locked by [`LOCK`] before.
//!
//! Each is one statement about one row, by its whole primary key: under any isolation level it locks that row alone, and
//! for no longer than itself.

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

/// In whole microseconds since the epoch: where fences come from.
macro_rules! micros {
    () => {
        concat!("TIMESTAMPDIFF(MICROSECOND, ", epoch!(), ", ", clock!(), ")")
    };
}

/// So many microseconds from now. One parameter.
macro_rules! from_now {
    () => {
        concat!(clock!(), " + INTERVAL ? MICROSECOND")
    };
}

/// The row that the statement is about. Parameters: scope, key, endpoint.
macro_rules! row {
    () => {
        "scope = ? AND id_key = ? AND endpoint = ?"
    };
}

/// Retention counts from acceptance and never ends before settle + 60 s (H44). Parameters: answer, retention.
macro_rules! settled {
    () => {
        concat!(
            "state = 1, held = 0, answer = ?, settled_at = ",
            clock!(),
            ", locked_until = ",
            clock!(),
            ", checkpoint_step = NULL, checkpoint = NULL, expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, ",
            clock!(),
            " + INTERVAL 60 SECOND)"
        )
    };
}

/// Prolongs the lease; a row never expires under its lease. Parameters: the lease, and once more.
macro_rules! prolonged {
    () => {
        concat!(
            "locked_until = GREATEST(locked_until, ",
            from_now!(),
            "), expires_at = GREATEST(expires_at, ",
            from_now!(),
            ")"
        )
    };
}

/// The row, expired or not. Parameters: scope, key, endpoint.
const LOOK: &str = concat!(
    "SELECT state, fingerprint, token, fence, attempt, held, answer, checkpoint_step, checkpoint, expires_at <= ",
    clock!(),
    " AS expired, locked_until <= ",
    clock!(),
    " AS ended FROM {schema}idempotency_leases WHERE ",
    row!()
);

/// A plain one: who gets no error has inserted it. The fence comes back as the last inserted id.
/// Parameters: scope, key, endpoint, fingerprint, token, held, lease, the longer of lease and retention.
const INSERT: &str = concat!(
    "{no_wait}INSERT INTO {schema}idempotency_leases \
        (scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held, \
         locked_until, accepted_at, expires_at) \
     VALUES (?, ?, ?, 0, ?, ?, LAST_INSERT_ID(",
    micros!(),
    "), 1, ?, ",
    from_now!(),
    ", ",
    clock!(),
    ", ",
    from_now!(),
    ")"
);

/// Before a change where no statement has a wait of its own: an error where somebody has the row. Found by its whole key,
/// and under READ COMMITTED, so that an absent row locks nothing. Parameters: scope, key, endpoint.
const LOCK: &str = concat!("SELECT 1 FROM {schema}idempotency_leases WHERE ", row!(), " FOR UPDATE NOWAIT");

/// Columns are assigned from left to right, and each later one sees the earlier ones.
/// Parameters: fingerprint, token, held, lease, those of `$set`, scope, key, endpoint, the token and the fence that were
/// seen.
macro_rules! take {
    ($set:expr, $condition:expr) => {
        concat!(
            "{no_wait}UPDATE {schema}idempotency_leases SET state = 0, fingerprint = ?, token = ?, held = ?, \
             fence = GREATEST(fence + 1, ",
            micros!(),
            "), locked_until = ",
            from_now!(),
            ", settled_at = NULL, answer = NULL, ",
            $set,
            " WHERE ",
            row!(),
            " AND token = ? AND fence = ? AND ",
            $condition
        )
    };
}

/// As the next attempt at the same operation. `$set`: retention, lease.
const TAKE_OVER: &str = take!(
    concat!("attempt = attempt + 1, expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, ", from_now!(), ")"),
    concat!("state = 0 AND held = 0 AND locked_until <= ", clock!())
);

/// As the first attempt at a new one (H24). `$set`: the longer of lease and retention.
const TAKE_AFRESH: &str = take!(
    concat!(
        "attempt = 1, checkpoint_step = NULL, checkpoint = NULL, accepted_at = ",
        clock!(),
        ", expires_at = ",
        from_now!()
    ),
    concat!("expires_at <= ", clock!())
);

/// What a claim has taken. Parameters: scope, key, endpoint, token.
const OWN: &str = concat!(
    "SELECT fence, attempt, checkpoint_step, checkpoint FROM {schema}idempotency_leases WHERE ",
    row!(),
    " AND token = ? AND state = 0"
);

/// What the owner of a row does. Parameters: those of `$set`, scope, key, endpoint, token.
macro_rules! change {
    ($set:expr) => {
        concat!(
            "{no_wait}UPDATE {schema}idempotency_leases SET ",
            $set,
            " WHERE ",
            row!(),
            " AND token = ? AND state = 0"
        )
    };
}

const RENEW: &str = change!(prolonged!());
const DISPATCH: &str = change!("held = ?");
const SETTLE: &str = change!(settled!());
/// The row stays, so that the next fence is larger whatever becomes of the server's clock.
const ABANDON: &str = change!(concat!(
    "token = ?, held = 0, locked_until = ",
    epoch!(),
    ", expires_at = IF(checkpoint_step IS NULL, ",
    epoch!(),
    ", expires_at)"
));
const STOP: &str = change!(concat!("locked_until = ", epoch!()));

const STANDING: &str = concat!("SELECT state FROM {schema}idempotency_leases WHERE ", row!(), " AND token = ?");

/// In the handler's transaction, which may wait for a renewal. Parameters: those of `$set`, the lease twice, scope, key,
/// endpoint, token.
macro_rules! hold {
    ($set:literal) => {
        concat!(
            "UPDATE {schema}idempotency_leases SET ",
            $set,
            prolonged!(),
            " WHERE ",
            row!(),
            " AND token = ? AND state = 0"
        )
    };
}

const GUARD: &str = hold!("");
const CHECKPOINT: &str = hold!("checkpoint_step = ?, checkpoint = ?, ");

macro_rules! search {
    ($condition:expr) => {
        concat!(
            "SELECT scope, id_key, endpoint, state, token, fence, attempt, held, answer, checkpoint_step, \
             TIMESTAMPDIFF(MICROSECOND, accepted_at, ",
            clock!(),
            ") AS age, TIMESTAMPDIFF(MICROSECOND, ",
            clock!(),
            ", expires_at) AS expires_in, TIMESTAMPDIFF(MICROSECOND, ",
            clock!(),
            ", locked_until) AS lease_left FROM {schema}idempotency_leases WHERE expires_at > ",
            clock!(),
            " AND ",
            $condition
        )
    };
}

/// Parameters: scope, key, endpoint or nothing, and once more.
const FIND: &str = search!("scope = ? AND id_key = ? AND (? IS NULL OR endpoint = ?) ORDER BY endpoint");
/// Parameters: age in microseconds, limit.
const STUCK: &str = search!(concat!(
    "state = 0 AND (locked_until <= ",
    clock!(),
    " OR accepted_at <= ",
    clock!(),
    " - INTERVAL ? MICROSECOND) ORDER BY accepted_at LIMIT ?"
));

/// A row that nobody runs. Parameters: scope, key, endpoint, token, fence.
macro_rules! stopped {
    () => {
        concat!(row!(), " AND token = ? AND fence = ? AND state = 0 AND locked_until <= ", clock!())
    };
}

const RELEASE: &str = concat!("{no_wait}UPDATE {schema}idempotency_leases SET held = 0 WHERE ", stopped!());
/// Parameters: those of the answer, then those of the row.
const SETTLE_AS: &str = concat!("{no_wait}UPDATE {schema}idempotency_leases SET ", settled!(), " WHERE ", stopped!());
/// Parameters: those of the row, token, fence, its state.
const FORGET: &str = concat!(
    "{no_wait}DELETE FROM {schema}idempotency_leases WHERE ",
    row!(),
    " AND token = ? AND fence = ? AND state = ? AND (state = 1 OR locked_until <= ",
    clock!(),
    ")"
);

/// Locks expired rows, and steps over those that somebody takes or guards. Parameter: limit.
pub(in crate::db::mysql) const LOCK_EXPIRED: &str = concat!(
    "SELECT scope, id_key, endpoint, TIMESTAMPDIFF(MICROSECOND, expires_at, ",
    clock!(),
    ") FROM {schema}idempotency_leases WHERE expires_at <= ",
    clock!(),
    " ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED"
);
/// Parameters: scope, key, endpoint.
const DELETE_EXPIRED: &str =
    concat!("DELETE FROM {schema}idempotency_leases WHERE ", row!(), " AND expires_at <= ", clock!());

texts! {
    look: LOOK,
    insert: INSERT,
    lock: LOCK,
    take_over: TAKE_OVER,
    take_afresh: TAKE_AFRESH,
    own: OWN,
    renew: RENEW,
    dispatch: DISPATCH,
    settle: SETTLE,
    abandon: ABANDON,
    stop: STOP,
    standing: STANDING,
    guard: GUARD,
    checkpoint: CHECKPOINT,
    find: FIND,
    stuck: STUCK,
    release: RELEASE,
    settle_as: SETTLE_AS,
    forget: FORGET,
    lock_expired: LOCK_EXPIRED,
    delete_expired: DELETE_EXPIRED,
}

#[cfg(test)]
mod tests {
    use super::*;

    // S3: what changes a row compares the token of whoever has seen or owns it.
    #[test]
    fn every_change_compares_a_token_and_waits_for_nobody() {
        for (name, text) in ALL {
            let writes = ["UPDATE {schema}", "DELETE FROM", "INSERT"].iter().any(|write| text.contains(write));
            if !writes || *name == "delete_expired" {
                continue;
            }
            assert!(*name == "insert" || text.contains("token = ? AND"), "{name}");
            assert!(text.starts_with("{no_wait}") || ["guard", "checkpoint"].contains(name), "{name}");
        }
    }

    // S5, H44, cases L17 and L18: every instant is made of the server's clock and lengths.
    #[test]
    fn every_text_that_writes_an_instant_reads_the_servers_clock() {
        for (name, text) in ALL {
            if ["lock", "own", "dispatch", "standing", "abandon", "stop"].contains(name) {
                continue;
            }
            assert!(text.contains(clock!()), "{name}");
        }
    }

    // An upsert tells everybody that one row was found, and IGNORE hides who was first.
    #[test]
    fn nothing_is_decided_by_an_upsert() {
        for (name, text) in ALL {
            for foreign in ["ON DUPLICATE", "IGNORE", "REPLACE", "GET_LOCK"] {
                assert!(!text.contains(foreign), "{name} uses {foreign}");
            }
        }
    }
}
