-- Events on their way. A row is pending because it is there: rows are inserted and deleted, and never updated.
-- `aggregatetype` is the topic, `aggregateid` the key. Keys compare byte for byte (collation BINARY); times are microseconds
-- since 1970 by SQLite's own clock.
CREATE TABLE idempotency_outbox (
    -- AUTOINCREMENT: the number of a deleted row is never given again.
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    -- 6 bits of a SHA-256 over destination and key.
    bucket        INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND 63),
    id            TEXT NOT NULL UNIQUE,
    destination   TEXT NOT NULL,
    aggregatetype TEXT NOT NULL,
    aggregateid   TEXT,
    type          TEXT NOT NULL,
    source        TEXT NOT NULL,
    content_type  TEXT,
    payload       BLOB NOT NULL,
    -- A JSON array of pairs.
    headers       TEXT,
    traceparent   TEXT,
    tracestate    TEXT,
    enqueued_at   INTEGER NOT NULL,
    redrives      INTEGER NOT NULL DEFAULT 0
) STRICT;
-- Every index ends with `seq`, which is the rowid.
CREATE INDEX idempotency_outbox_bucket ON idempotency_outbox (bucket);

-- Events that are not due yet. They get their number when they are.
CREATE TABLE idempotency_outbox_deferred (
    n             INTEGER PRIMARY KEY AUTOINCREMENT,
    due_at        INTEGER NOT NULL,
    bucket        INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND 63),
    id            TEXT NOT NULL UNIQUE,
    destination   TEXT NOT NULL,
    aggregatetype TEXT NOT NULL,
    aggregateid   TEXT,
    type          TEXT NOT NULL,
    source        TEXT NOT NULL,
    content_type  TEXT,
    payload       BLOB NOT NULL,
    headers       TEXT,
    traceparent   TEXT,
    tracestate    TEXT,
    enqueued_at   INTEGER NOT NULL,
    redrives      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX idempotency_outbox_deferred_due_at ON idempotency_outbox_deferred (due_at);

-- What is known of pending events whose last attempt has failed.
CREATE TABLE idempotency_outbox_failing (
    bucket        INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    id            TEXT NOT NULL,
    destination   TEXT NOT NULL,
    aggregateid   TEXT,
    attempts      INTEGER NOT NULL CHECK (attempts >= 0),
    -- Waits for an operator.
    blocked       INTEGER NOT NULL CHECK (blocked IN (0, 1)),
    failing_since INTEGER NOT NULL,
    retry_at      INTEGER NOT NULL,
    redrives      INTEGER NOT NULL DEFAULT 0,
    error         TEXT NOT NULL,
    PRIMARY KEY (bucket, seq)
) STRICT;
CREATE INDEX idempotency_outbox_failing_id ON idempotency_outbox_failing (id);
CREATE INDEX idempotency_outbox_failing_since ON idempotency_outbox_failing (blocked DESC, failing_since);

-- Events that are not tried any more.
CREATE TABLE idempotency_outbox_dead (
    id            TEXT NOT NULL PRIMARY KEY,
    bucket        INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    destination   TEXT NOT NULL,
    aggregatetype TEXT NOT NULL,
    aggregateid   TEXT,
    type          TEXT NOT NULL,
    source        TEXT NOT NULL,
    content_type  TEXT,
    payload       BLOB NOT NULL,
    headers       TEXT,
    traceparent   TEXT,
    tracestate    TEXT,
    enqueued_at   INTEGER NOT NULL,
    redrives      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    error         TEXT NOT NULL,
    died_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX idempotency_outbox_dead_died_at ON idempotency_outbox_dead (died_at, seq);

-- Destinations, and single keys of them, whose events wait. Who relays is decided by a lock on a file beside the database.
CREATE TABLE idempotency_outbox_paused (
    destination TEXT NOT NULL,
    -- Without one, the whole destination; its key is empty then.
    has_key     INTEGER NOT NULL CHECK (has_key IN (0, 1)),
    aggregateid TEXT NOT NULL,
    PRIMARY KEY (destination, has_key, aggregateid)
) STRICT;
