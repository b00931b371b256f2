# shellcheck shell=bash disable=SC2154 # tmp and as come from common.sh
# Redis: REDIS_URL, and REDIS_CTL, a script that stops, kills, pauses and starts each private Redis server by its name.
# This file also has what the cluster and the sentinel need.

redis_given() { [ -n "${REDIS_URL:-}" ]; }

redis_need() { command -v redis-server >/dev/null && command -v redis-cli >/dev/null; }

redis_install() {
    # Debian's package starts a server of its own unless it is kept from it, which apt_install does.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt_install redis-server
        return
    fi
    say "no Redis server found (redis-server and redis-cli in PATH)."
    say "Install it, for example:"
    say "  Debian, Ubuntu: sudo apt-get install --no-install-recommends redis-server"
    say "  Fedora:         sudo dnf install redis"
    say "  macOS:          brew install redis"
    say "or set REDIS_URL, REDIS_CLUSTER_URL and REDIS_SENTINEL_URL to use running ones."
    return 1
}

redis_start() {
    redis_server single <<<'' || die "Redis did not start"
    publish REDIS_URL "redis://127.0.0.1:$redis_port/0"
}

redis_stop() { redis_end single; }

# Where private servers live, and the script that controls them. Once for all of them.
redis_prepare() {
    [ -z "${redis_dir:-}" ] || return 0
    local user
    redis_dir=$tmp/redis
    user=$(server_user redis)
    as_user "$user"
    redis_as=("${as[@]+"${as[@]}"}")
    mkdir -m 700 "$redis_dir"
    [ ${#redis_as[@]} = 0 ] || chown "$(id -u "$user"):$(id -g "$user")" "$redis_dir"
    redis_write_ctl
    publish REDIS_CTL "$tmp/redis-ctl"
}

# Starts a server called NAME on a free port, with more settings from standard input; sets redis_port.
redis_server() { # NAME [ARG…]
    local name=$1 more try
    shift
    more=$(cat)
    redis_prepare
    for try in 1 2 3 4 5; do
        redis_port=$(free_port) || die "no free port on loopback"
        mkdir -p "$redis_dir/$name"
        cat >"$redis_dir/$name/conf" <<CONF
bind 127.0.0.1
port $redis_port
dir $redis_dir/$name
daemonize no
${more//PORT/$redis_port}
CONF
        # A sentinel takes no settings of a server.
        case " $* " in
            *' --sentinel '*) ;;
            *) printf 'save ""\nappendonly no\n' >>"$redis_dir/$name/conf" ;;
        esac
        [ ${#redis_as[@]} = 0 ] || chown -R "$(stat -c %u:%g "$redis_dir")" "$redis_dir/$name"
        printf '%s\n' "$redis_port" >"$tmp/redis-$name.port"
        printf '%s\n' "$@" >"$tmp/redis-$name.args"
        "$tmp/redis-ctl" start "$name" 2>"$tmp/redis-start.log" && return 0
        # Somebody took the port in between, or the one of the cluster's bus: try another one.
        if [ "$try" = 5 ] || ! grep -qi 'in use\|could not create server\|bind' "$tmp/redis-start.log"; then
            cat "$tmp/redis-start.log" >&2
            return 1
        fi
        rm -rf "${redis_dir:?}/$name"
    done
}

redis_end() { # NAME…
    local name pid
    for name in "$@"; do
        pid=$(cat "$tmp/redis-$name.pid" 2>/dev/null) && [ -n "$pid" ] || continue
        # A paused one does not hear anything else.
        ! alive "$pid" "$(cat "$tmp/redis-$name.port")" || kill -CONT "$pid" 2>/dev/null
        end_process "$pid" "$(cat "$tmp/redis-$name.port")" TERM
    done
}

# The helper that starts and stops these servers, for us and for tests. It waits until what it did is done.
redis_write_ctl() {
    {
        echo '#!/usr/bin/env bash'
        echo '# Controls the private Redis servers of one run of tests/run, by name:'
        echo '# start | stop | kill | restart | pause | resume, then single, cluster-1 to cluster-3, primary, replica, sentinel'
        printf 'tmp=%q dir=%q\n' "$tmp" "$redis_dir"
        # An empty array must stay empty: no `printf` without words.
        if [ ${#redis_as[@]} = 0 ]; then echo 'as=()'; else printf 'as=(%s)\n' "$(printf '%q ' "${redis_as[@]}")"; fi
        declare -f say alive end_process
        cat <<'CTL'
set -u
name=${2:-}
[ -n "$name" ] && [ -d "$dir/$name" ] && cd "$dir/$name" || cd "$tmp" || exit 1
# One at a time for each server, where flock exists. The server must not inherit the lock.
exec 9>>"$tmp/redis-$name.lock"
if command -v flock >/dev/null && ! flock -w 60 9; then
    say "redis-ctl: another call holds the lock"
    exit 1
fi
# A signal must not come between the start of the server and the note of its process id.
trap : INT TERM HUP
pid=$(cat "$tmp/redis-$name.pid" 2>/dev/null)
port=$(cat "$tmp/redis-$name.port" 2>/dev/null) || { say "redis-ctl: no server called '$name'"; exit 2; }

running() { [ -n "$pid" ] && alive "$pid" "$port"; }

stop() {
    running || return 0
    kill -CONT "$pid" 2>/dev/null
    end_process "$pid" "$port" "$1"
    # A process that is being killed has no command line any more and holds its port for another moment.
    local try
    for try in {1..100}; do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
        sleep 0.05
    done
}

start() {
    ! running || return 0
    local args=()
    while IFS= read -r arg; do [ -z "$arg" ] || args+=("$arg"); done <"$tmp/redis-$name.args"
    # Its own process group: Ctrl-C in a terminal is for the tests, the server is stopped after them.
    set -m
    "${as[@]+"${as[@]}"}" redis-server "$dir/$name/conf" "${args[@]+"${args[@]}"}" >>"$tmp/redis-$name.log" 2>&1 </dev/null 9>&- &
    pid=$!
    set +m
    echo "$pid" >"$tmp/redis-$name.pid"
    local deadline=$((SECONDS + 30))
    while [ "$SECONDS" -lt "$deadline" ]; do
        kill -0 "$pid" 2>/dev/null || break
        # Its own process id says that it is this server that is ready, not another one on that port.
        if redis-cli -h 127.0.0.1 -p "$port" info server 2>/dev/null | tr -d '\r' | grep -qx "process_id:$pid"; then
            return 0
        fi
        sleep 0.05
    done
    say "Redis ($name) was not ready within 30 s or ended; the last lines of its log:"
    tail -n 20 "$tmp/redis-$name.log" >&2
    end_process "$pid" "$port" KILL
    return 1
}

case ${1:-} in
    start) start ;;
    stop) stop TERM ;;
    kill) stop KILL ;;
    restart) stop KILL && start ;;
    pause) running && kill -STOP "$pid" ;;
    resume) running && kill -CONT "$pid" ;;
    *)
        say "usage: redis-ctl start | stop | kill | restart | pause | resume NAME"
        exit 2
        ;;
esac
CTL
    } >"$tmp/redis-ctl"
    chmod 755 "$tmp/redis-ctl"
}
