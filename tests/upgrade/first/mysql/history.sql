CREATE TABLE IF NOT EXISTS {schema}idempotency_migrations (
    version    INT NOT NULL PRIMARY KEY,
    applied_at DATETIME(6) NOT NULL
) ENGINE = InnoDB
