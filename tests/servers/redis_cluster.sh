# shellcheck shell=bash disable=SC2154 # tmp comes from common.sh, redis_port from redis.sh
# A Redis Cluster of three nodes without replicas: REDIS_CLUSTER_URL, their addresses with commas between. REDIS_CTL
# knows them as cluster-1 to cluster-3.

redis_cluster_given() { [ -n "${REDIS_CLUSTER_URL:-}" ]; }

redis_cluster_need() { redis_need; }

redis_cluster_install() { redis_install; }

redis_cluster_start() {
    local number nodes=() urls='' try
    for number in 1 2 3; do
        # A node that is away is known to be so after a second; the others go on with their slots.
        redis_server "cluster-$number" <<CONF || die "a node of the Redis Cluster did not start"
cluster-enabled yes
cluster-config-file nodes.conf
cluster-node-timeout 1000
cluster-require-full-coverage no
CONF
        nodes+=("127.0.0.1:$redis_port")
        urls=$urls${urls:+,}redis://127.0.0.1:$redis_port
    done
    if ! redis-cli --cluster create "${nodes[@]}" --cluster-yes >"$tmp/redis-cluster.log" 2>&1 </dev/null; then
        tail -n 20 "$tmp/redis-cluster.log" >&2
        die "the Redis Cluster could not be made"
    fi
    # Every node must know every slot before a test asks.
    for try in {1..200}; do
        [ "$(redis_cluster_ready "${nodes[@]}")" != 3 ] || break
        [ "$try" != 200 ] || die "the Redis Cluster was not ready within 20 s"
        sleep 0.1
    done
    publish REDIS_CLUSTER_URL "$urls"
}

# How many of these nodes see the whole cluster.
redis_cluster_ready() { # NODE…
    local node ready=0 info
    for node in "$@"; do
        info=$(redis-cli -h "${node%:*}" -p "${node#*:}" cluster info 2>/dev/null | tr -d '\r')
        if grep -qx cluster_state:ok <<<"$info" && grep -qx cluster_slots_ok:16384 <<<"$info" &&
            grep -qx cluster_known_nodes:3 <<<"$info"; then
            ready=$((ready + 1))
        fi
    done
    echo "$ready"
}

redis_cluster_stop() { redis_end cluster-1 cluster-2 cluster-3; }
