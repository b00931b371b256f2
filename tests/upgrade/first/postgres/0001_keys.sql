-- One row an operation: who asked for what, and the answer that was given.
-- Keys compare byte for byte (collation "C"); every time is the server's own.
CREATE TABLE {schema}idempotency_keys (
    scope       text COLLATE "C" NOT NULL,
    id_key      text COLLATE "C" NOT NULL,
    endpoint    text COLLATE "C" NOT NULL,
    -- 0 running, 1 completed, 2 orphaned. A running row that anybody else can see was committed by its own handler.
    state       smallint NOT NULL CHECK (state IN (0, 1, 2)),
    -- 8 bytes profile, 32 bytes SHA-256.
    fingerprint bytea NOT NULL,
    -- The random name of the claim.
    token       bytea NOT NULL,
    claim_xid   xid8,
    accepted_at timestamptz NOT NULL,
    settled_at  timestamptz,
    expires_at  timestamptz NOT NULL,
    answer      bytea,
    PRIMARY KEY (scope, id_key, endpoint)
);

CREATE INDEX idempotency_keys_expires_at ON {schema}idempotency_keys (expires_at);
