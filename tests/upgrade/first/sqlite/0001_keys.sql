-- One row an operation: who asked for what, and the answer that was given.
-- Keys compare byte for byte (collation BINARY); times are microseconds since 1970 by SQLite's own clock.
CREATE TABLE idempotency_keys (
    scope       TEXT NOT NULL COLLATE BINARY,
    id_key      TEXT NOT NULL COLLATE BINARY,
    endpoint    TEXT NOT NULL COLLATE BINARY,
    -- 0 running, 1 completed, 2 orphaned, 3 announced. A running row that anybody else can see was committed by its own
    -- handler; an announced row is worth as much as its owner lives.
    state       INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
    -- 8 bytes profile, 32 bytes SHA-256.
    fingerprint BLOB NOT NULL,
    -- The random name of the claim.
    token       BLOB NOT NULL,
    -- The random name of the store that announced it, part of the name of its lock file.
    owner       BLOB,
    accepted_at INTEGER NOT NULL,
    settled_at  INTEGER,
    expires_at  INTEGER NOT NULL,
    answer      BLOB,
    PRIMARY KEY (scope, id_key, endpoint)
) STRICT;

CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);
