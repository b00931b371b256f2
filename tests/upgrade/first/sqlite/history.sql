CREATE TABLE IF NOT EXISTS idempotency_migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000)) STRICT
