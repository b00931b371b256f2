-- One row an operation: who asked for what, and the answer that was given.
-- Keys compare byte for byte (VARBINARY); every time is the server's own, in UTC. There is one unique key: with a second
-- one an upsert would not know which row it has met.
CREATE TABLE IF NOT EXISTS {schema}idempotency_keys (
    scope       VARBINARY(255) NOT NULL,
    id_key      VARBINARY(255) NOT NULL,
    endpoint    VARBINARY(255) NOT NULL,
    -- 0 running, 1 completed, 2 orphaned. A running row that is committed was committed by its own handler.
    state       TINYINT NOT NULL,
    -- 8 bytes profile, 32 bytes SHA-256.
    fingerprint VARBINARY(40) NOT NULL,
    -- The random name of the claim.
    token       VARBINARY(16) NOT NULL,
    accepted_at DATETIME(6) NOT NULL,
    settled_at  DATETIME(6) NULL,
    expires_at  DATETIME(6) NOT NULL,
    answer      MEDIUMBLOB NULL,
    PRIMARY KEY (scope, id_key, endpoint),
    KEY idempotency_keys_expires_at (expires_at)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC
