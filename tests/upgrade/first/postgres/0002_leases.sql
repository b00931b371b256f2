-- One row an operation that is held by a lease, for handlers that call somebody else.
-- Keys compare byte for byte (collation "C"); every time is the server's own.
CREATE TABLE {schema}idempotency_leases (
    scope           text COLLATE "C" NOT NULL,
    id_key          text COLLATE "C" NOT NULL,
    endpoint        text COLLATE "C" NOT NULL,
    -- 0 running or stopped, 1 completed.
    state           smallint NOT NULL CHECK (state IN (0, 1)),
    -- 8 bytes profile, 32 bytes SHA-256.
    fingerprint     bytea NOT NULL,
    -- The random name of the attempt that owns it; noughts where nobody does.
    token           bytea NOT NULL,
    -- Larger for each later owner.
    fence           bigint NOT NULL,
    attempt         bigint NOT NULL,
    -- An attempt that stops is not followed by another one.
    held            boolean NOT NULL,
    locked_until    timestamptz NOT NULL,
    accepted_at     timestamptz NOT NULL,
    settled_at      timestamptz,
    expires_at      timestamptz NOT NULL,
    answer          bytea,
    -- The last step that is done, and what the steps so far have given, as JSON.
    checkpoint_step text,
    checkpoint      bytea,
    PRIMARY KEY (scope, id_key, endpoint)
);

CREATE INDEX idempotency_leases_expires_at ON {schema}idempotency_leases (expires_at);
CREATE INDEX idempotency_leases_open ON {schema}idempotency_leases (accepted_at) WHERE state = 0;
