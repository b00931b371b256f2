# shellcheck shell=bash disable=SC2154 # tmp comes from common.sh, redis_port from redis.sh
# A Redis with a replica and a sentinel that watches them under the name "main": REDIS_SENTINEL_URL. REDIS_CTL knows
# them as primary, replica and sentinel, whatever their roles are by then.

redis_sentinel_given() { [ -n "${REDIS_SENTINEL_URL:-}" ]; }

redis_sentinel_need() { redis_need; }

redis_sentinel_install() { redis_install; }

redis_sentinel_start() {
    local primary replica try
    redis_server primary <<<'repl-diskless-sync-delay 0' || die "the primary Redis did not start"
    primary=$redis_port
    redis_server replica <<CONF || die "the replica of Redis did not start"
replicaof 127.0.0.1 $primary
repl-diskless-sync-delay 0
CONF
    replica=$redis_port
    for try in {1..200}; do
        ! redis-cli -h 127.0.0.1 -p "$replica" info replication | grep -q master_link_status:up || break
        [ "$try" != 200 ] || die "the replica of Redis did not follow within 20 s"
        sleep 0.1
    done
    redis_server sentinel --sentinel <<CONF || die "the Redis Sentinel did not start"
sentinel monitor main 127.0.0.1 $primary 1
sentinel down-after-milliseconds main 1000
sentinel failover-timeout main 3000
CONF
    for try in {1..300}; do
        ! redis-cli -h 127.0.0.1 -p "$redis_port" sentinel replicas main | grep -qx "$replica" || break
        [ "$try" != 300 ] || die "the Redis Sentinel did not find the replica within 30 s"
        sleep 0.1
    done
    publish REDIS_SENTINEL_URL "redis://127.0.0.1:$redis_port"
}

redis_sentinel_stop() { redis_end sentinel replica primary; }
