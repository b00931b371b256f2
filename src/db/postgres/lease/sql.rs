//! The texts.

use crate::db::lease::texts;

/// The server's clock in whole microseconds since the epoch: where fences come from.
macro_rules! micros {
    () => {
        "floor(extract(epoch FROM clock_timestamp()) * 1000000)::int8"
    };
}

/// The row that the statement is about. Parameters: 1 scope, 2 key, 3 endpoint.
macro_rules! row {
    () => {
        "scope = $1 AND id_key = $2 AND endpoint = $3"
    };
}

/// A row that was picked by a CTE named `picked`, which it has locked or stepped over.
macro_rules! picked {
    ($alias:literal) => {
        concat!(
            $alias,
            ".scope = picked.scope AND ",
            $alias,
            ".id_key = picked.id_key AND ",
            $alias,
            ".endpoint = picked.endpoint"
        )
    };
}

/// Picks the row under a condition, unless somebody has locked it: nobody waits for a transaction that guards.
macro_rules! pick {
    ($condition:expr) => {
        concat!(
            "WITH picked AS MATERIALIZED (SELECT scope, id_key, endpoint FROM {schema}idempotency_leases WHERE ",
            row!(),
            " AND ",
            $condition,
            " FOR UPDATE SKIP LOCKED) "
        )
    };
}

/// Retention counts from acceptance and never ends before settle + 60 s (H44).
macro_rules! settled {
    ($retention:literal, $answer:literal) => {
        concat!(
            "state = 1, held = false, answer = ",
            $answer,
            ", settled_at = clock_timestamp(), \
             locked_until = clock_timestamp(), checkpoint_step = NULL, checkpoint = NULL, \
             expires_at = greatest(accepted_at + ",
            $retention,
            " * interval '1 microsecond', \
             clock_timestamp() + interval '60 seconds')"
        )
    };
}

/// Prolongs the lease; a row never expires under its lease.
macro_rules! prolonged {
    ($lease:literal) => {
        concat!(
            "locked_until = greatest(lease.locked_until, clock_timestamp() + ",
            $lease,
            " * interval '1 microsecond'), \
             expires_at = greatest(lease.expires_at, clock_timestamp() + ",
            $lease,
            " * interval '1 microsecond')"
        )
    };
}

/// The row, expired or not; inserted where there is none. It is read first, so that a row which somebody is changing
/// in a transaction is not waited for.
/// Parameters: 1 scope, 2 key, 3 endpoint, 4 fingerprint, 5 token, 6 held, 7 lease and 8 retention in microseconds.
const ASK: &str = concat!(
    "WITH seen AS MATERIALIZED (
    SELECT state, fingerprint, token, fence, attempt, held, answer, checkpoint_step, checkpoint,
        expires_at <= clock_timestamp() AS expired, locked_until <= clock_timestamp() AS ended
    FROM {schema}idempotency_leases WHERE ",
    row!(),
    "
), granted AS (
    INSERT INTO {schema}idempotency_leases
        (scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held,
         locked_until, accepted_at, expires_at)
    SELECT $1, $2, $3, 0, $4, $5, ",
    micros!(),
    ", 1, $6, moment.at + $7 * interval '1 microsecond', moment.at,
        moment.at + greatest($7, $8) * interval '1 microsecond'
    FROM (SELECT clock_timestamp() AS at OFFSET 0) AS moment
    WHERE NOT EXISTS (SELECT 1 FROM seen)
    ON CONFLICT (scope, id_key, endpoint) DO NOTHING
    RETURNING fence AS granted
)
SELECT granted.granted, seen.*
FROM (SELECT 1) AS one LEFT JOIN granted ON true LEFT JOIN seen ON true"
);

/// Parameters: as above, 9 the token and 10 the fence that were seen.
macro_rules! take {
    ($condition:literal, $set:literal) => {
        concat!(
            pick!(concat!("token = $9 AND fence = $10 AND ", $condition)),
            "UPDATE {schema}idempotency_leases AS lease SET state = 0, fingerprint = $4, token = $5, held = $6,
                fence = greatest(lease.fence + 1, ",
            micros!(),
            "),
                locked_until = clock_timestamp() + $7 * interval '1 microsecond',
                settled_at = NULL, answer = NULL, ",
            $set,
            "
            FROM picked WHERE ",
            picked!("lease"),
            " AND lease.token = $9
            RETURNING lease.fence, lease.attempt, lease.checkpoint_step, lease.checkpoint"
        )
    };
}

/// As the next attempt at the same operation.
const TAKE_OVER: &str = take!(
    "state = 0 AND NOT held AND locked_until <= clock_timestamp()",
    "attempt = lease.attempt + 1, expires_at = greatest(lease.accepted_at + $8 * interval '1 microsecond', \
     clock_timestamp() + $7 * interval '1 microsecond')"
);

/// As the first attempt at a new one (H24).
const TAKE_AFRESH: &str = take!(
    "expires_at <= clock_timestamp()",
    "attempt = 1, accepted_at = clock_timestamp(), checkpoint_step = NULL, checkpoint = NULL, \
     expires_at = clock_timestamp() + greatest($7, $8) * interval '1 microsecond'"
);

/// Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 lease in microseconds.
const RENEW: &str = concat!(
    pick!("token = $4 AND state = 0"),
    "UPDATE {schema}idempotency_leases AS lease SET ",
    prolonged!("$5"),
    " FROM picked WHERE ",
    picked!("lease"),
    " AND lease.token = $4"
);

/// What the owner of a row does. Parameters: 1 scope, 2 key, 3 endpoint, 4 token, then those of the change.
macro_rules! change {
    ($set:expr) => {
        concat!("UPDATE {schema}idempotency_leases SET ", $set, " WHERE ", row!(), " AND token = $4 AND state = 0")
    };
}

const DISPATCH: &str = change!("held = $5");
const SETTLE: &str = change!(settled!("$5", "$6"));
/// The row stays, so that the next fence is larger whatever becomes of the server's clock.
const ABANDON: &str = change!(
    "token = $5, held = false, locked_until = timestamptz 'epoch', \
     expires_at = CASE WHEN checkpoint_step IS NULL THEN timestamptz 'epoch' ELSE expires_at END"
);
const STOP: &str = change!("locked_until = timestamptz 'epoch'");

const STANDING: &str = concat!("SELECT state FROM {schema}idempotency_leases WHERE ", row!(), " AND token = $4");

/// In the handler's transaction. Division by the number of changed rows: where there is none, the error ends the
/// transaction. Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 lease in microseconds, then those of `$set`.
macro_rules! hold {
    ($set:literal) => {
        concat!(
            "WITH own AS (UPDATE {schema}idempotency_leases AS lease SET ",
            $set,
            prolonged!("$5"),
            " WHERE ",
            row!(),
            " AND token = $4 AND state = 0 RETURNING 1 AS one) SELECT 1 / count(*) FROM own"
        )
    };
}

pub(super) const DIVIDED_BY_NONE: &str = "22012";
const GUARD: &str = hold!("");
const CHECKPOINT: &str = hold!("checkpoint_step = $6, checkpoint = $7, ");

macro_rules! search {
    ($condition:expr) => {
        concat!(
            "SELECT scope, id_key, endpoint, state, token, fence, attempt, held, answer, checkpoint_step,
                floor(extract(epoch FROM clock_timestamp() - accepted_at) * 1000000)::int8 AS age,
                floor(extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::int8 AS expires_in,
                floor(extract(epoch FROM locked_until - clock_timestamp()) * 1000000)::int8 AS lease_left
            FROM {schema}idempotency_leases WHERE expires_at > clock_timestamp() AND ",
            $condition
        )
    };
}

const FIND: &str = search!("scope = $1 AND id_key = $2 AND ($3::text IS NULL OR endpoint = $3) ORDER BY endpoint");
/// Parameters: 1 age in microseconds, 2 limit.
const STUCK: &str = search!(
    "state = 0 AND (locked_until <= clock_timestamp() \
     OR accepted_at <= clock_timestamp() - $1 * interval '1 microsecond') ORDER BY accepted_at LIMIT $2"
);

/// What an operator does with a row that nobody runs. Parameters: 1 scope, 2 key, 3 endpoint, 4 token, 5 fence, then
/// those of the change.
macro_rules! stopped {
    () => {
        pick!("token = $4 AND fence = $5 AND state = 0 AND locked_until <= clock_timestamp()")
    };
}

const RELEASE: &str = concat!(
    stopped!(),
    "UPDATE {schema}idempotency_leases AS lease SET held = false FROM picked WHERE ",
    picked!("lease"),
    " AND lease.token = $4"
);
const SETTLE_AS: &str = concat!(
    stopped!(),
    "UPDATE {schema}idempotency_leases AS lease SET ",
    settled!("$6", "$7"),
    " FROM picked WHERE ",
    picked!("lease"),
    " AND lease.token = $4"
);
/// Parameters: as above, 6 its state.
const FORGET: &str = concat!(
    pick!("token = $4 AND fence = $5 AND state = $6 AND (state = 1 OR locked_until <= clock_timestamp())"),
    "DELETE FROM {schema}idempotency_leases AS lease USING picked WHERE ",
    picked!("lease"),
    " AND lease.token = $4"
);

/// Returns how long each had been expired, in microseconds. Parameter: 1 limit.
pub(in crate::db::postgres) const PURGE: &str = concat!(
    "WITH picked AS MATERIALIZED (SELECT scope, id_key, endpoint FROM {schema}idempotency_leases
        WHERE expires_at <= (SELECT clock_timestamp()) ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
    DELETE FROM {schema}idempotency_leases AS lease USING picked WHERE ",
    picked!("lease"),
    " AND lease.expires_at <= clock_timestamp() \
     RETURNING (extract(epoch FROM clock_timestamp() - lease.expires_at) * 1000000)::int8"
);

texts! {
    ask: ASK,
    take_over: TAKE_OVER,
    take_afresh: TAKE_AFRESH,
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
    purge: PURGE,
}

#[cfg(test)]
mod tests {
    use super::*;

    // S24 and the promise to distributed engines: nothing of one session or one server.
    #[test]
    fn no_text_uses_what_only_one_server_has() {
        for (name, text) in ALL {
            let text = text.to_lowercase();
            for foreign in ["advisory", "listen", "notify", "ctid", "xmin", "pg_", "now()", "current_timestamp"] {
                assert!(!text.contains(foreign), "{name} uses {foreign}");
            }
        }
    }

    // S5, H44, cases L17 and L18: every instant is made of the server's clock and lengths.
    #[test]
    fn every_text_that_writes_an_instant_reads_the_servers_clock() {
        for (name, text) in ALL {
            if ["dispatch", "standing", "abandon", "stop", "release"].contains(name) {
                continue;
            }
            assert!(text.contains("clock_timestamp()"), "{name}");
        }
    }

    // S3: what changes a row compares the token of whoever has seen or owns it.
    #[test]
    fn every_change_compares_a_token() {
        for (name, text) in ALL {
            if (text.contains("UPDATE {schema}") || text.contains("DELETE FROM")) && *name != "purge" {
                assert!(text.contains("token = $4") || text.contains("token = $9"), "{name}");
            }
        }
    }
}
