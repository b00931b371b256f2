-- What a process of the first version says to MariaDB, taken down when the first schema was. Never changed: processes that run it
-- are still there while others are replaced (S30). Parameters are bound as that version binds them.

-- name: begin
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ WRITE; SAVEPOINT idempotency_claim; SET SESSION TRANSACTION READ ONLY; SET autocommit = 0

-- name: claim
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR INSERT INTO {schema}idempotency_keys (scope, id_key, endpoint, state, fingerprint, token, accepted_at, settled_at, expires_at, answer) VALUES (?, ?, ?, 0, ?, ?, UTC_TIMESTAMP(6), NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, NULL) ON DUPLICATE KEY UPDATE
    state = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(state), state),
    fingerprint = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(fingerprint), fingerprint),
    token = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(token), token),
    accepted_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(accepted_at), accepted_at),
    settled_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(settled_at), settled_at),
    answer = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(answer), answer),
    expires_at = IF(expires_at <= UTC_TIMESTAMP(6), VALUE(expires_at), expires_at)
RETURNING token, fingerprint, state, answer, CONNECTION_ID() AS session

-- name: find
SELECT state, fingerprint, answer, expires_at <= UTC_TIMESTAMP(6) AS expired FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ?

-- name: peek
SELECT state, fingerprint, expires_at <= UTC_TIMESTAMP(6) AS expired FROM {schema}idempotency_keys
WHERE scope = ? AND id_key = ? AND endpoint = ?

-- name: settle
BEGIN NOT ATOMIC
    RELEASE SAVEPOINT idempotency_claim;
    UPDATE {schema}idempotency_keys SET
        state = 1, answer = ?, settled_at = UTC_TIMESTAMP(6),
        expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 60 SECOND)
    WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0;
    IF ROW_COUNT() <> 1 THEN
        SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1305, MESSAGE_TEXT = 'the row of the claim is gone';
    END IF;
    COMMIT;
    SET autocommit = 1;
    SET SESSION TRANSACTION READ WRITE;
    SELECT ? AS mark;
END

-- name: leave
ROLLBACK; SET autocommit = 1; SET SESSION TRANSACTION READ WRITE; SELECT 'left {mark}' AS mark

-- name: forget
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR DELETE FROM {schema}idempotency_keys WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ?

-- name: lease_look
SELECT state, fingerprint, token, fence, attempt, held, answer, checkpoint_step, checkpoint, expires_at <= UTC_TIMESTAMP(6) AS expired, locked_until <= UTC_TIMESTAMP(6) AS ended FROM {schema}idempotency_leases WHERE scope = ? AND id_key = ? AND endpoint = ?

-- name: lease_insert
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR INSERT INTO {schema}idempotency_leases (scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held, locked_until, accepted_at, expires_at) VALUES (?, ?, ?, 0, ?, ?, LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))), 1, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)

-- name: lease_renew
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR UPDATE {schema}idempotency_leases SET locked_until = GREATEST(locked_until, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND), expires_at = GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0

-- name: lease_settle
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR UPDATE {schema}idempotency_leases SET state = 1, held = 0, answer = ?, settled_at = UTC_TIMESTAMP(6), locked_until = UTC_TIMESTAMP(6), checkpoint_step = NULL, checkpoint = NULL, expires_at = GREATEST(accepted_at + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL 60 SECOND) WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0

-- name: lease_abandon
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR UPDATE {schema}idempotency_leases SET token = ?, held = 0, locked_until = TIMESTAMP'1970-01-01 00:00:00', expires_at = IF(checkpoint_step IS NULL, TIMESTAMP'1970-01-01 00:00:00', expires_at) WHERE scope = ? AND id_key = ? AND endpoint = ? AND token = ? AND state = 0

-- name: accept
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR INSERT INTO {schema}idempotency_inbox (consumer, source, id, token, digest, accepted_at, expires_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)

-- name: look
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR SELECT digest FROM {schema}idempotency_inbox WHERE consumer = ? AND source = ? AND id = ? LOCK IN SHARE MODE

-- name: confirm
UPDATE {schema}idempotency_inbox SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE consumer = ? AND source = ? AND id = ? AND token = ?

-- name: enqueue
INSERT INTO {schema}idempotency_outbox (bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, traceparent, tracestate, enqueued_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))

-- name: join
INSERT INTO {schema}idempotency_outbox_relay (name, token, live_until) VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE token = VALUES(token), live_until = VALUES(live_until)

-- name: live
SELECT name, token FROM {schema}idempotency_outbox_relay WHERE live_until > UTC_TIMESTAMP(6) ORDER BY name

-- name: buckets
SELECT bucket, owner, epoch, vanished FROM {schema}idempotency_outbox_bucket ORDER BY bucket

-- name: take
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (bucket TINYINT PATH '$[0]', epoch BIGINT PATH '$[1]', owner CHAR(32) PATH '$[2]')) AS a STRAIGHT_JOIN {schema}idempotency_outbox_bucket AS b ON b.bucket = a.bucket AND b.epoch = a.epoch AND b.owner <=> UNHEX(a.owner) SET b.vanished = b.owner IS NOT NULL, b.epoch = b.epoch + 1, b.owner = ?

-- name: poll
(SELECT o.bucket, o.id, o.destination, o.aggregatetype, o.aggregateid, o.type, o.source, o.content_type, o.payload, o.headers, o.traceparent, o.tracestate, o.enqueued_at, o.seq, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', o.enqueued_at) AS occurred, o.redrives + COALESCE((SELECT f.redrives FROM {schema}idempotency_outbox_failing AS f WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id), 0) AS redrives FROM {schema}idempotency_outbox AS o FORCE INDEX (PRIMARY) WHERE o.bucket = ? AND o.seq > ? ORDER BY o.seq LIMIT ?)

-- name: delete
DELETE o, f FROM JSON_TABLE(?, '$[*]' COLUMNS (bucket TINYINT PATH '$[0]', seq BIGINT PATH '$[1]', id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]')) AS a STRAIGHT_JOIN {schema}idempotency_outbox AS o ON o.bucket = a.bucket AND o.seq = a.seq AND o.id = a.id LEFT JOIN {schema}idempotency_outbox_failing AS f ON f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id

-- name: applied
SELECT COUNT(*) FROM {schema}idempotency_migrations WHERE version = ?
