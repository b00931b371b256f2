-- What a process of the first version says to SQLite, taken down when the first schema was. Never changed: processes that run it
-- are still there while others are replaced (S30). Parameters are bound as that version binds them.

-- name: begin
BEGIN IMMEDIATE

-- name: look
SELECT state, fingerprint, token, owner, answer FROM idempotency_keys WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND (state = 3 OR expires_at > (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000))

-- name: announce
INSERT INTO idempotency_keys AS held (scope, id_key, endpoint, state, fingerprint, token, owner, accepted_at, expires_at) SELECT ?1, ?2, ?3, 3, ?4, ?5, ?6, moment.at, moment.at + ?7 FROM (SELECT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) AS at) AS moment WHERE true ON CONFLICT (scope, id_key, endpoint) DO UPDATE SET state = 3, fingerprint = excluded.fingerprint, token = excluded.token, owner = excluded.owner, accepted_at = excluded.accepted_at, settled_at = NULL, expires_at = excluded.expires_at, answer = NULL WHERE (held.state <> 3 AND held.expires_at <= excluded.accepted_at) OR (held.state = 3 AND held.token = ?8)

-- name: savepoint
SAVEPOINT idempotency_claim

-- name: run
UPDATE idempotency_keys SET state = 0 WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 3

-- name: settle
UPDATE idempotency_keys SET state = 1, owner = NULL, answer = ?6, settled_at = (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000), expires_at = max(accepted_at + ?5, (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) + 60000000) WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = ?7

-- name: release
RELEASE SAVEPOINT idempotency_claim

-- name: take_back
DELETE FROM idempotency_keys WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 3

-- name: forget
DELETE FROM idempotency_keys WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = ?5

-- name: lease_look
SELECT state, fingerprint, token, fence, attempt, held, answer, checkpoint_step, checkpoint, expires_at <= (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) AS expired, locked_until <= (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) AS ended FROM idempotency_leases WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3

-- name: lease_insert
INSERT INTO idempotency_leases (scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held, locked_until, accepted_at, expires_at) SELECT ?1, ?2, ?3, 0, ?4, ?5, moment.at, 1, ?6, moment.at + ?7, moment.at, moment.at + max(?7, ?8) FROM (SELECT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) AS at) AS moment WHERE true ON CONFLICT (scope, id_key, endpoint) DO NOTHING RETURNING fence

-- name: lease_renew
UPDATE idempotency_leases SET locked_until = max(locked_until, (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) + ?5), expires_at = max(expires_at, (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) + ?5) WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 0

-- name: lease_settle
UPDATE idempotency_leases SET state = 1, held = 0, answer = ?6, settled_at = (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000), locked_until = (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000), checkpoint_step = NULL, checkpoint = NULL, expires_at = max(accepted_at + ?5, (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) + 60000000) WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 0

-- name: lease_abandon
UPDATE idempotency_leases SET token = ?5, held = 0, locked_until = 0, expires_at = CASE WHEN checkpoint_step IS NULL THEN 0 ELSE expires_at END WHERE scope = ?1 AND id_key = ?2 AND endpoint = ?3 AND token = ?4 AND state = 0

-- name: accept
INSERT INTO idempotency_inbox (consumer, source, id, token, digest, accepted_at, expires_at) SELECT ?1, unhex(value ->> 0), unhex(value ->> 1), unhex(value ->> 2), unhex(value ->> 3), (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000), (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) + ?2 FROM json_each(?3) WHERE true ON CONFLICT (consumer, source, id) DO NOTHING RETURNING token

-- name: mark_look
SELECT asked.key AS n, held.digest FROM json_each(?2) AS asked CROSS JOIN idempotency_inbox AS held WHERE held.consumer = ?1 AND held.source = unhex(asked.value ->> 0) AND held.id = unhex(asked.value ->> 1)

-- name: confirm
UPDATE idempotency_inbox SET expires_at = (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000) + ?5 WHERE consumer = ?1 AND source = ?2 AND id = ?3 AND token = ?4

-- name: enqueue
INSERT INTO idempotency_outbox (bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, traceparent, tracestate, enqueued_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000))

-- name: poll
SELECT * FROM (SELECT o.bucket, o.seq, o.id, o.destination, o.aggregatetype, o.aggregateid, o.type, o.source, o.content_type, o.payload, o.headers, o.traceparent, o.tracestate, o.enqueued_at AS occurred, o.redrives + coalesce((SELECT f.redrives FROM idempotency_outbox_failing AS f WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id), 0) AS redrives FROM idempotency_outbox AS o WHERE o.bucket = ? AND o.seq > ? ORDER BY o.seq LIMIT ?)

-- name: delete
DELETE FROM idempotency_outbox WHERE seq IN (SELECT o.seq FROM json_each(?1) AS a CROSS JOIN idempotency_outbox AS o WHERE o.seq = a.value ->> 1 AND o.bucket = a.value ->> 0 AND o.id = a.value ->> 2)

-- name: delete_failing
DELETE FROM idempotency_outbox_failing WHERE rowid IN (SELECT f.rowid FROM json_each(?1) AS a CROSS JOIN idempotency_outbox_failing AS f WHERE f.bucket = a.value ->> 0 AND f.seq = a.value ->> 1 AND f.id = a.value ->> 2)

-- name: applied
SELECT count(*) FROM idempotency_migrations WHERE version = ?1
