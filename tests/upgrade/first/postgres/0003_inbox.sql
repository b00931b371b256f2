-- One row a message that a consumer has processed. Its three parts compare byte for byte; every time is the server's own.
CREATE TABLE {schema}idempotency_inbox (
    consumer    bytea NOT NULL,
    source      bytea NOT NULL,
    id          bytea NOT NULL,
    -- The random name of the delivery that owns it, and the transaction that it was written in.
    token       bytea NOT NULL,
    claim_xid   xid8 NOT NULL,
    -- SHA-256 of the payload, where that is compared.
    digest      bytea,
    accepted_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (consumer, source, id)
);

CREATE INDEX idempotency_inbox_expires_at ON {schema}idempotency_inbox (expires_at);

-- How often a message has failed, where that is counted.
CREATE TABLE {schema}idempotency_inbox_failures (
    consumer   bytea NOT NULL,
    source     bytea NOT NULL,
    id         bytea NOT NULL,
    failures   bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (consumer, source, id)
);

CREATE INDEX idempotency_inbox_failures_expires_at ON {schema}idempotency_inbox_failures (expires_at);
