-- One row a message that a consumer has processed. Its three parts compare byte for byte (VARBINARY); every time is the
-- server's own, in UTC. No second unique key: an INSERT that meets a row must have met this very one.
CREATE TABLE IF NOT EXISTS {schema}idempotency_inbox (
    consumer    VARBINARY(255) NOT NULL,
    source      VARBINARY(255) NOT NULL,
    id          VARBINARY(255) NOT NULL,
    -- The random name of the delivery that owns it.
    token       VARBINARY(16) NOT NULL,
    -- SHA-256 of the payload, where that is compared.
    digest      VARBINARY(32) NULL,
    accepted_at DATETIME(6) NOT NULL,
    expires_at  DATETIME(6) NOT NULL,
    PRIMARY KEY (consumer, source, id),
    KEY idempotency_inbox_expires_at (expires_at)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- How often a message has failed, where that is counted.
CREATE TABLE IF NOT EXISTS {schema}idempotency_inbox_failures (
    consumer   VARBINARY(255) NOT NULL,
    source     VARBINARY(255) NOT NULL,
    id         VARBINARY(255) NOT NULL,
    failures   BIGINT NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    PRIMARY KEY (consumer, source, id),
    KEY idempotency_inbox_failures_expires_at (expires_at)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC
