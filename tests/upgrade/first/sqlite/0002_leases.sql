-- One row an operation that is held by a lease, for handlers that call somebody else.
-- Keys compare byte for byte (collation BINARY); times are microseconds since 1970 by SQLite's own clock.
CREATE TABLE idempotency_leases (
    scope           TEXT NOT NULL COLLATE BINARY,
    id_key          TEXT NOT NULL COLLATE BINARY,
    endpoint        TEXT NOT NULL COLLATE BINARY,
    -- 0 running or stopped, 1 completed.
    state           INTEGER NOT NULL CHECK (state IN (0, 1)),
    -- 8 bytes profile, 32 bytes SHA-256.
    fingerprint     BLOB NOT NULL,
    -- The random name of the attempt that owns it; noughts where nobody does.
    token           BLOB NOT NULL,
    -- Larger for each later owner.
    fence           INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    -- An attempt that stops is not followed by another one.
    held            INTEGER NOT NULL CHECK (held IN (0, 1)),
    locked_until    INTEGER NOT NULL,
    accepted_at     INTEGER NOT NULL,
    settled_at      INTEGER,
    expires_at      INTEGER NOT NULL,
    answer          BLOB,
    -- The last step that is done, and what the steps so far have given, as JSON.
    checkpoint_step TEXT,
    checkpoint      BLOB,
    PRIMARY KEY (scope, id_key, endpoint)
) STRICT;

CREATE INDEX idempotency_leases_expires_at ON idempotency_leases (expires_at);
CREATE INDEX idempotency_leases_open ON idempotency_leases (accepted_at) WHERE state = 0;

-- Always empty. A row can be written, but its transaction cannot commit then: it refers to a row that cannot be. This is
-- how a transaction ends whose attempt has lost its lease.
CREATE TABLE idempotency_lost_leases (
    id    INTEGER PRIMARY KEY CHECK (id > 0),
    never INTEGER NOT NULL CHECK (never = 0) REFERENCES idempotency_lost_leases (id) DEFERRABLE INITIALLY DEFERRED
) STRICT;
