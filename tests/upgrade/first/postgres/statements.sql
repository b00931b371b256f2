-- What a process of the first version says to Postgres, taken down when the first schema was. Never changed: processes that run it
-- are still there while others are replaced (S30). Parameters are bound as that version binds them.

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: claim
WITH live AS MATERIALIZED (
    SELECT state, fingerprint, answer FROM {schema}idempotency_keys
    WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND expires_at > clock_timestamp()
), claimed AS (
    INSERT INTO {schema}idempotency_keys AS held
        (scope, id_key, endpoint, state, fingerprint, token, claim_xid, accepted_at, expires_at)
    SELECT $1, $2, $3, 0, $7, $8, pg_current_xact_id(), moment.at, moment.at + $9 * interval '1 microsecond'
    FROM (SELECT clock_timestamp() AS at OFFSET 0) AS moment
    WHERE CASE WHEN EXISTS (SELECT FROM live) THEN false ELSE pg_try_advisory_xact_lock($4) END
    ON CONFLICT (scope, id_key, endpoint) DO UPDATE SET
        state = 0, fingerprint = excluded.fingerprint, token = excluded.token, claim_xid = excluded.claim_xid,
        accepted_at = excluded.accepted_at, settled_at = NULL, expires_at = excluded.expires_at, answer = NULL
    WHERE held.expires_at <= clock_timestamp()
    RETURNING ctid::text AS ctid, claim_xid::text AS xid, accepted_at,
        pg_try_advisory_xact_lock($5, $6),
        set_config('idle_in_transaction_session_timeout', coalesce($10, '0'), true),
        set_config('tcp_keepalives_idle', $11, true),
        set_config('tcp_keepalives_interval', $12, true)
)
SELECT live.state, live.fingerprint, live.answer, claimed.ctid, claimed.xid,
    (extract(epoch FROM claimed.accepted_at) * 1000000)::int8 AS accepted
FROM claimed FULL JOIN live ON true

-- name: claim_again
WITH live AS MATERIALIZED (
    SELECT state, fingerprint, answer FROM {schema}idempotency_keys
    WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND expires_at > clock_timestamp()
), k AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($4) AS got WHERE NOT EXISTS (SELECT FROM live)
), claimed AS (
    INSERT INTO {schema}idempotency_keys AS held
        (scope, id_key, endpoint, state, fingerprint, token, claim_xid, accepted_at, expires_at)
    SELECT $1, $2, $3, 0, $7, $8, pg_current_xact_id(), moment.at, moment.at + $9 * interval '1 microsecond'
    FROM k CROSS JOIN LATERAL (SELECT clock_timestamp() AS at OFFSET 0) AS moment
    WHERE k.got
    ON CONFLICT (scope, id_key, endpoint) DO UPDATE SET
        state = 0, fingerprint = excluded.fingerprint, token = excluded.token, claim_xid = excluded.claim_xid,
        accepted_at = excluded.accepted_at, settled_at = NULL, expires_at = excluded.expires_at, answer = NULL
    WHERE held.expires_at <= clock_timestamp()
    RETURNING ctid::text AS ctid, claim_xid::text AS xid, accepted_at
), f AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($5, $6) AS got,
        set_config('idle_in_transaction_session_timeout', coalesce($10, '0'), true),
        set_config('tcp_keepalives_idle', $11, true),
        set_config('tcp_keepalives_interval', $12, true)
    FROM claimed
), probe AS MATERIALIZED (
    SELECT pg_try_advisory_lock_shared($5, $6) AS got FROM k WHERE NOT k.got
), freed AS MATERIALIZED (
    SELECT pg_advisory_unlock_shared($5, $6) AS done FROM probe WHERE probe.got
), rival AS MATERIALIZED (
    SELECT bool_or(owner.holds_key AND owner.holds_other) AS other FROM (
        SELECT
            bool_or(objsubid = 1 AND classid::int8 = (($4 >> 32) & 4294967295)
                AND objid::int8 = ($4 & 4294967295)) AS holds_key,
            bool_or(objsubid = 2 AND classid::int8 = ($5::int8 & 4294967295)
                AND objid::int8 <> ($6::int8 & 4294967295)) AS holds_other
        FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND EXISTS (SELECT FROM freed)
        GROUP BY pid
    ) AS owner
)
SELECT
    (SELECT state FROM live) AS state,
    (SELECT fingerprint FROM live) AS fingerprint,
    (SELECT answer FROM live) AS answer,
    (SELECT got FROM k) AS got_key,
    (SELECT ctid FROM claimed) AS ctid,
    (SELECT xid FROM claimed) AS xid,
    (SELECT (extract(epoch FROM accepted_at) * 1000000)::int8 FROM claimed) AS accepted,
    (SELECT got FROM f) AS got_fingerprint,
    (SELECT got FROM probe) AS probed,
    (SELECT done FROM freed) AS freed,
    (SELECT other FROM rival) AS rival

-- name: peek
SELECT state, fingerprint, answer FROM {schema}idempotency_keys
WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND expires_at > clock_timestamp()

-- name: settle
UPDATE {schema}idempotency_keys SET
    state = 1, answer = $6, settled_at = clock_timestamp(),
    expires_at = greatest(accepted_at + $5 * interval '1 microsecond', clock_timestamp() + interval '60 seconds')
WHERE ctid = $1::text::tid AND scope = $2 AND id_key = $3 AND endpoint = $4 AND state = 0
    AND claim_xid = pg_current_xact_id()

-- name: forget
WITH k AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($4) AS got
), changed AS (
    DELETE FROM {schema}idempotency_keys USING k
    WHERE k.got AND scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $5 AND state = ANY ($6)
        AND expires_at > clock_timestamp()
    RETURNING 1
)
SELECT (SELECT got FROM k) AS got, EXISTS (SELECT FROM changed) AS changed

-- name: lease_ask
WITH seen AS MATERIALIZED (
    SELECT state, fingerprint, token, fence, attempt, held, answer, checkpoint_step, checkpoint,
        expires_at <= clock_timestamp() AS expired, locked_until <= clock_timestamp() AS ended
    FROM {schema}idempotency_leases WHERE scope = $1 AND id_key = $2 AND endpoint = $3
), granted AS (
    INSERT INTO {schema}idempotency_leases
        (scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held,
         locked_until, accepted_at, expires_at)
    SELECT $1, $2, $3, 0, $4, $5, floor(extract(epoch FROM clock_timestamp()) * 1000000)::int8, 1, $6, moment.at + $7 * interval '1 microsecond', moment.at,
        moment.at + greatest($7, $8) * interval '1 microsecond'
    FROM (SELECT clock_timestamp() AS at OFFSET 0) AS moment
    WHERE NOT EXISTS (SELECT 1 FROM seen)
    ON CONFLICT (scope, id_key, endpoint) DO NOTHING
    RETURNING fence AS granted
)
SELECT granted.granted, seen.*
FROM (SELECT 1) AS one LEFT JOIN granted ON true LEFT JOIN seen ON true

-- name: lease_renew
WITH picked AS MATERIALIZED (SELECT scope, id_key, endpoint FROM {schema}idempotency_leases WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $4 AND state = 0 FOR UPDATE SKIP LOCKED) UPDATE {schema}idempotency_leases AS lease SET locked_until = greatest(lease.locked_until, clock_timestamp() + $5 * interval '1 microsecond'), expires_at = greatest(lease.expires_at, clock_timestamp() + $5 * interval '1 microsecond') FROM picked WHERE lease.scope = picked.scope AND lease.id_key = picked.id_key AND lease.endpoint = picked.endpoint AND lease.token = $4

-- name: lease_settle
UPDATE {schema}idempotency_leases SET state = 1, held = false, answer = $6, settled_at = clock_timestamp(), locked_until = clock_timestamp(), checkpoint_step = NULL, checkpoint = NULL, expires_at = greatest(accepted_at + $5 * interval '1 microsecond', clock_timestamp() + interval '60 seconds') WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $4 AND state = 0

-- name: lease_abandon
UPDATE {schema}idempotency_leases SET token = $5, held = false, locked_until = timestamptz 'epoch', expires_at = CASE WHEN checkpoint_step IS NULL THEN timestamptz 'epoch' ELSE expires_at END WHERE scope = $1 AND id_key = $2 AND endpoint = $3 AND token = $4 AND state = 0

-- name: accept
WITH level AS MATERIALIZED (SELECT current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') AS strict), seen AS MATERIALIZED (SELECT digest FROM {schema}idempotency_inbox WHERE NOT (SELECT strict FROM level) AND consumer = $1 AND source = $2 AND id = $3), k AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4) AS got FROM level WHERE NOT strict AND NOT EXISTS (SELECT FROM seen)), accepted AS (INSERT INTO {schema}idempotency_inbox AS held (consumer, source, id, token, claim_xid, digest, accepted_at, expires_at) SELECT $1, $2, $3, $5, pg_current_xact_id(), $6, moment.at, moment.at + $7 * interval '1 microsecond' FROM k CROSS JOIN LATERAL (SELECT clock_timestamp() AS at OFFSET 0) AS moment WHERE k.got ON CONFLICT (consumer, source, id) DO NOTHING RETURNING ctid::text AS place, CASE WHEN $8::text IS NOT NULL AND ($9 OR current_setting('idle_in_transaction_session_timeout') = '0') THEN set_config('idle_in_transaction_session_timeout', $8, true) END) SELECT strict, EXISTS (SELECT FROM seen) AS seen, (SELECT digest FROM seen) AS digest, (SELECT got FROM k) AS got, (SELECT place FROM accepted) AS accepted FROM level

-- name: confirm
UPDATE {schema}idempotency_inbox SET expires_at = clock_timestamp() + $5 * interval '1 microsecond' WHERE ctid = $6::text::tid AND consumer = $1 AND source = $2 AND id = $3 AND token = $4 AND claim_xid = pg_current_xact_id()

-- name: enqueue
INSERT INTO {schema}idempotency_outbox (bucket, id, destination, aggregatetype, aggregateid, type, source, content_type, payload, headers, traceparent, tracestate) VALUES ($1, $2::text::uuid, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: join
WITH me AS (INSERT INTO {schema}idempotency_outbox_relay AS m (name, token, until) VALUES ($1, $2::text::uuid, clock_timestamp() + $3 * interval '1 microsecond') ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until RETURNING name) SELECT name, NULL::int2 AS bucket, NULL::int8 AS epoch, NULL::bool AS vanished FROM me UNION ALL SELECT m.name, NULL, NULL, NULL FROM {schema}idempotency_outbox_relay AS m WHERE m.until > clock_timestamp() AND m.name <> $1 AND EXISTS (SELECT 1 FROM me) UNION ALL SELECT NULL, bucket, epoch, vanished FROM {schema}idempotency_outbox_bucket WHERE owner = $2::text::uuid AND EXISTS (SELECT 1 FROM me)

-- name: take
WITH free AS MATERIALIZED (SELECT b.bucket, b.owner IS NOT NULL AS vanished FROM {schema}idempotency_outbox_bucket AS b WHERE (b.owner IS NULL OR NOT EXISTS (SELECT 1 FROM {schema}idempotency_outbox_relay AS m WHERE m.token = b.owner AND m.until > clock_timestamp())) AND EXISTS (SELECT 1 FROM {schema}idempotency_outbox_relay AS m WHERE m.token = $1::text::uuid AND m.until > clock_timestamp()) ORDER BY b.bucket LIMIT $2 FOR UPDATE OF b SKIP LOCKED) UPDATE {schema}idempotency_outbox_bucket AS b SET owner = $1::text::uuid, epoch = b.epoch + 1, vanished = free.vanished FROM free WHERE b.bucket = free.bucket RETURNING b.bucket, b.epoch, b.vanished

-- name: poll
SELECT e.* FROM unnest($1::int2[], $2::int8[], $3::int8[]) AS p (bucket, after, most) CROSS JOIN LATERAL (SELECT o.bucket, o.seq, o.id::text AS id, o.destination, o.aggregatetype, o.aggregateid, o.type, o.source, o.content_type, o.payload, o.headers, o.traceparent, o.tracestate, (extract(epoch FROM o.enqueued_at) * 1000000)::int8 AS occurred, (o.redrives + coalesce((SELECT f.redrives FROM {schema}idempotency_outbox_failing AS f WHERE f.bucket = o.bucket AND f.seq = o.seq AND f.id = o.id), 0))::int8 AS redrives FROM {schema}idempotency_outbox AS o WHERE o.bucket = p.bucket AND o.seq > p.after ORDER BY o.seq LIMIT p.most) AS e ORDER BY e.bucket, e.seq

-- name: delete
WITH acked AS MATERIALIZED (SELECT * FROM unnest($1::int2[], $2::int8[], $3::uuid[]) AS a (bucket, seq, id)), failed AS (DELETE FROM {schema}idempotency_outbox_failing AS f USING acked WHERE f.bucket = acked.bucket AND f.seq = acked.seq AND f.id = acked.id) DELETE FROM {schema}idempotency_outbox AS o USING acked WHERE o.bucket = acked.bucket AND o.seq = acked.seq AND o.id = acked.id

-- name: leave
WITH gone AS (DELETE FROM {schema}idempotency_outbox_relay WHERE name = $1 AND token = $2::text::uuid) UPDATE {schema}idempotency_outbox_bucket SET owner = NULL, vanished = false WHERE owner = $2::text::uuid

-- name: applied
SELECT count(*) FROM {schema}idempotency_migrations WHERE version = $1
