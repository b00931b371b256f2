-- Events on their way. A row is pending because it is there: rows are inserted and deleted, and never updated.
-- `id`, `aggregatetype` (the topic), `aggregateid` (the key), `type` and `payload` are the columns that a Debezium outbox
-- event router reads. Every time is the server's own, in UTC.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox (
    -- 6 bits of a SHA-256 over destination and key.
    bucket        TINYINT NOT NULL,
    seq           BIGINT NOT NULL AUTO_INCREMENT,
    id            CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    destination   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregatetype VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregateid   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    type          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    source        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    content_type  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    payload       LONGBLOB NOT NULL,
    -- A JSON array of pairs.
    headers       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    traceparent   VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
    tracestate    VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NULL,
    enqueued_at   DATETIME(6) NOT NULL,
    redrives      INT NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, seq),
    UNIQUE KEY idempotency_outbox_id (id),
    -- InnoDB wants an index that begins with what it counts up.
    KEY idempotency_outbox_seq (seq)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- Events that are not due yet. They get their number when they are.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox_deferred (
    n             BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    due_at        DATETIME(6) NOT NULL,
    bucket        TINYINT NOT NULL,
    id            CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    destination   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregatetype VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregateid   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    type          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    source        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    content_type  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    payload       LONGBLOB NOT NULL,
    headers       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    traceparent   VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
    tracestate    VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NULL,
    enqueued_at   DATETIME(6) NOT NULL,
    redrives      INT NOT NULL DEFAULT 0,
    UNIQUE KEY idempotency_outbox_deferred_id (id),
    KEY idempotency_outbox_deferred_due_at (due_at, n)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- What is known of pending events whose last attempt has failed.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox_failing (
    bucket        TINYINT NOT NULL,
    seq           BIGINT NOT NULL,
    id            CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    destination   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregateid   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    attempts      INT NOT NULL,
    -- Waits for an operator.
    blocked       TINYINT NOT NULL,
    failing_since DATETIME(6) NOT NULL,
    retry_at      DATETIME(6) NOT NULL,
    redrives      INT NOT NULL DEFAULT 0,
    error         VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (bucket, seq),
    KEY idempotency_outbox_failing_id (id),
    KEY idempotency_outbox_failing_since (blocked, failing_since)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- Events that are not tried any more.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox_dead (
    id            CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    bucket        TINYINT NOT NULL,
    seq           BIGINT NOT NULL,
    destination   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregatetype VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregateid   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    type          VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    source        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    content_type  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    payload       LONGBLOB NOT NULL,
    headers       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    traceparent   VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
    tracestate    VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NULL,
    enqueued_at   DATETIME(6) NOT NULL,
    redrives      INT NOT NULL,
    attempts      INT NOT NULL,
    error         VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    died_at       DATETIME(6) NOT NULL,
    KEY idempotency_outbox_dead_died_at (died_at, seq)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC;

-- Relays that take part, as long as they say so.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox_relay (
    name       VARBINARY(255) NOT NULL PRIMARY KEY,
    -- The incarnation.
    token      BINARY(16) NOT NULL,
    live_until DATETIME(6) NOT NULL
) ENGINE = InnoDB;

-- Who works on which part. The epoch grows with every owner.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox_bucket (
    bucket   TINYINT NOT NULL PRIMARY KEY,
    owner    BINARY(16) NULL,
    epoch    BIGINT NOT NULL,
    -- Whether the owner before has gone without a word.
    vanished TINYINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO {schema}idempotency_outbox_bucket (bucket, epoch, vanished)
SELECT high.n * 8 + low.n, 0, 0
FROM (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS high
CROSS JOIN
     (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS low;

-- Destinations, and single keys of them, whose events wait.
CREATE TABLE IF NOT EXISTS {schema}idempotency_outbox_paused (
    destination VARBINARY(255) NOT NULL,
    -- Without one, the whole destination; its key is empty then.
    has_key     TINYINT NOT NULL,
    aggregateid VARBINARY(255) NOT NULL,
    PRIMARY KEY (destination, has_key, aggregateid)
) ENGINE = InnoDB
