-- One row a message that a consumer has processed. Its three parts are bytes; times are microseconds since 1970 by SQLite's
-- own clock.
CREATE TABLE idempotency_inbox (
    consumer    BLOB NOT NULL,
    source      BLOB NOT NULL,
    id          BLOB NOT NULL,
    -- The random name of the delivery that owns it.
    token       BLOB NOT NULL,
    -- SHA-256 of the payload, where that is compared.
    digest      BLOB,
    accepted_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (consumer, source, id)
) STRICT;

CREATE INDEX idempotency_inbox_expires_at ON idempotency_inbox (expires_at);

-- How often a message has failed, where that is counted.
CREATE TABLE idempotency_inbox_failures (
    consumer   BLOB NOT NULL,
    source     BLOB NOT NULL,
    id         BLOB NOT NULL,
    failures   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (consumer, source, id)
) STRICT;

CREATE INDEX idempotency_inbox_failures_expires_at ON idempotency_inbox_failures (expires_at);
