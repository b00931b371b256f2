-- One row an operation that is held by a lease, for handlers that call somebody else.
-- Keys compare byte for byte (VARBINARY); every time is the server's own, in UTC.
CREATE TABLE IF NOT EXISTS {schema}idempotency_leases (
    scope           VARBINARY(255) NOT NULL,
    id_key          VARBINARY(255) NOT NULL,
    endpoint        VARBINARY(255) NOT NULL,
    -- 0 running or stopped, 1 completed.
    state           TINYINT NOT NULL,
    -- 8 bytes profile, 32 bytes SHA-256.
    fingerprint     VARBINARY(40) NOT NULL,
    -- The random name of the attempt that owns it; noughts where nobody does.
    token           VARBINARY(16) NOT NULL,
    -- Larger for each later owner.
    fence           BIGINT NOT NULL,
    attempt         BIGINT NOT NULL,
    -- An attempt that stops is not followed by another one.
    held            TINYINT NOT NULL,
    locked_until    DATETIME(6) NOT NULL,
    accepted_at     DATETIME(6) NOT NULL,
    settled_at      DATETIME(6) NULL,
    expires_at      DATETIME(6) NOT NULL,
    answer          MEDIUMBLOB NULL,
    -- The last step that is done, and what the steps so far have given, as JSON.
    checkpoint_step MEDIUMBLOB NULL,
    checkpoint      MEDIUMBLOB NULL,
    PRIMARY KEY (scope, id_key, endpoint),
    KEY idempotency_leases_expires_at (expires_at),
    KEY idempotency_leases_open (state, accepted_at)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC
