# shellcheck shell=bash disable=SC2154 # tmp and as come from common.sh
# RabbitMQ: AMQP_URL, and AMQP_CTL, a script that stops, kills, pauses and starts this private server, and asks it for what
# rabbitmqctl does.
#
# A node of its own: name, cookie, home and data in the temporary folder, no plugins. Its port mapper (epmd) is a private
# one too. It takes some seconds to start, so it starts beside the servers that come after it: `rabbitmq_await` waits.

rabbitmq_given() { [ -n "${AMQP_URL:-}" ]; }

# The script that starts a node in the foreground. Debian's rabbitmq-server in sbin insists on a user of its own.
rabbitmq_need() {
    local found
    rabbitmq_bin=
    for found in /usr/lib/rabbitmq/bin/rabbitmq-server /opt/homebrew/sbin/rabbitmq-server \
        /usr/local/sbin/rabbitmq-server "$(command -v rabbitmq-server || true)"; do
        [ ! -x "$found" ] || { rabbitmq_bin=$found && break; }
    done
    [ -n "$rabbitmq_bin" ] && command -v erl >/dev/null && rabbitmq_epmd=$(rabbitmq_find_epmd) && [ -n "$rabbitmq_epmd" ]
}

# Not everywhere in PATH: it belongs to Erlang's runtime.
rabbitmq_find_epmd() {
    local found
    command -v epmd && return 0
    for found in /usr/lib/erlang/erts-*/bin/epmd /opt/homebrew/lib/erlang/erts-*/bin/epmd; do
        [ ! -x "$found" ] || { echo "$found" && return 0; }
    done
    return 1
}

rabbitmq_install() {
    # Debian's package starts a node of its own unless it is kept from it, which apt_install does.
    apt_install rabbitmq-server && return 0
    say "no RabbitMQ found (rabbitmq-server, erl and epmd). Install it, for example:"
    say "  Debian, Ubuntu: sudo apt-get install --no-install-recommends rabbitmq-server"
    say "  Fedora:         sudo dnf install rabbitmq-server"
    say "  macOS:          brew install rabbitmq"
    say "or set AMQP_URL=amqp://user:password@host:port/%2f to use a running one, as a user who may declare queues."
    return 1
}

rabbitmq_start() {
    local user
    rabbitmq_dir=$tmp/rabbitmq
    user=$(server_user rabbitmq)
    as_user "$user"
    mkdir -m 700 "$rabbitmq_dir"
    rabbitmq_write_ctl
    rabbitmq_configure "$user"
    "$tmp/rabbitmq-ctl" start 2>"$tmp/rabbitmq-start.log" </dev/null &
    rabbitmq_starting=$!
}

# Waits for what rabbitmq_start has begun.
rabbitmq_await() {
    local user try
    user=$(server_user rabbitmq)
    as_user "$user"
    for try in 1 2 3 4 5; do
        ! wait "$rabbitmq_starting" || break
        # Somebody took a port in between: try others. Anything else is an error.
        if [ "$try" = 5 ] || ! grep -qi 'eaddrinuse\|already in use\|already_used' "$tmp/rabbitmq-start.log"; then
            cat "$tmp/rabbitmq-start.log" >&2
            die "RabbitMQ did not start (as $user, $rabbitmq_bin)"
        fi
        rabbitmq_configure "$user"
        "$tmp/rabbitmq-ctl" start 2>"$tmp/rabbitmq-start.log" </dev/null &
        rabbitmq_starting=$!
    done
    rabbitmq_starting=
    publish AMQP_URL "amqp://guest:guest@127.0.0.1:$(cut -d' ' -f1 "$tmp/rabbitmq.port")/%2f"
    publish AMQP_CTL "$tmp/rabbitmq-ctl"
}

# Free ports for the node, its distribution and its port mapper; settings that come from nobody else.
rabbitmq_configure() { # USER
    local port distribution mapper
    if ! { port=$(free_port) && distribution=$(free_port) && mapper=$(free_port); }; then die "no free port on loopback"; fi
    echo "$port $distribution $mapper" >"$tmp/rabbitmq.port"
    : >"$rabbitmq_dir/env.conf"
    echo '[].' >"$rabbitmq_dir/plugins"
    # Little memory, messages of at most 4 MiB, and no alarm because of somebody else's full disk.
    cat >"$rabbitmq_dir/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$port
num_acceptors.tcp = 2
max_message_size = 4194304
vm_memory_high_watermark.absolute = 512MiB
disk_free_limit.absolute = 16MiB
log.console = false
log.file = $rabbitmq_dir/log
log.file.level = info
CONF
    rm -f "$rabbitmq_dir/.erlang.cookie"
    od -An -tx1 -N24 /dev/urandom | tr -d ' \n' >"$rabbitmq_dir/.erlang.cookie"
    chmod 400 "$rabbitmq_dir/.erlang.cookie"
    [ ${#as[@]} = 0 ] || chown -R "$(id -u "$1"):$(id -g "$1")" "$rabbitmq_dir"
}

rabbitmq_stop() {
    local pid mapper ports
    [ -n "${rabbitmq_dir:-}" ] || return 0
    # A start that is under way ends when its server does. It may not have come so far as to note its process id.
    while :; do
        pid=$(cat "$tmp/rabbitmq.pid" 2>/dev/null)
        [ -z "$pid" ] || end_process "$pid" "$rabbitmq_dir" KILL
        { [ -n "${rabbitmq_starting:-}" ] && kill -0 "$rabbitmq_starting" 2>/dev/null; } || break
        sleep 0.1
    done
    mapper=$(cat "$tmp/rabbitmq-epmd.pid" 2>/dev/null)
    ports=$(cat "$tmp/rabbitmq.port" 2>/dev/null)
    [ -z "$mapper" ] || end_process "$mapper" "-port ${ports##* }" KILL
}

# The helper that starts and stops this server, for us and for tests. It waits until what it did is done.
rabbitmq_write_ctl() {
    {
        echo '#!/usr/bin/env bash'
        echo '# Controls the private RabbitMQ of one run of tests/run: start | stop | kill | restart | pause | resume | ctl ARG…'
        printf 'tmp=%q dir=%q bin=%q epmd=%q\n' "$tmp" "$rabbitmq_dir" "$rabbitmq_bin" "$rabbitmq_epmd"
        # An empty array must stay empty: no `printf` without words.
        if [ ${#as[@]} = 0 ]; then echo 'as=()'; else printf 'as=(%s)\n' "$(printf '%q ' "${as[@]}")"; fi
        declare -f say alive end_process
        cat <<'CTL'
set -u
cd "$tmp" || exit 1
# One at a time, where flock exists. The server must not inherit the lock.
exec 9>>"$tmp/rabbitmq.lock"
if command -v flock >/dev/null && ! flock -w 240 9; then
    say "rabbitmq-ctl: another call holds the lock"
    exit 1
fi
# A signal must not come between the start of the server and the note of its process id.
trap : INT TERM HUP
pid=$(cat "$tmp/rabbitmq.pid" 2>/dev/null)
mapper_pid=$(cat "$tmp/rabbitmq-epmd.pid" 2>/dev/null)
read -r port distribution mapper <"$tmp/rabbitmq.port"

running() { [ -n "$pid" ] && alive "$pid" "$dir"; }

stop() {
    if running; then
        kill -CONT "$pid" 2>/dev/null
        end_process "$pid" "$dir" "$1"
    fi
    # A node that comes back must not find its old entry.
    [ -z "$mapper_pid" ] || end_process "$mapper_pid" "-port $mapper" TERM
}

in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start() {
    ! running || return 0
    if in_use "$mapper"; then
        say "port $mapper is already in use"
        return 1
    fi
    rm -f "$dir/log"
    # Their own process groups: Ctrl-C in a terminal is for the tests, the server is stopped after them.
    set -m
    "${as[@]+"${as[@]}"}" "$epmd" -address 127.0.0.1 -port "$mapper" >>"$tmp/rabbitmq-epmd.log" 2>&1 </dev/null 9>&- &
    mapper_pid=$!
    echo "$mapper_pid" >"$tmp/rabbitmq-epmd.pid"
    # ALLOW_INPUT makes the script become the node instead of watching over it. Two schedulers are enough. The last argument
    # is for us: it tells the process by its command line from the first moment on.
    "${as[@]+"${as[@]}"}" env -u ERL_FLAGS -u ERL_AFLAGS -u ERL_ZFLAGS -u ERL_LIBS \
        HOME="$dir" ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$mapper" \
        RABBITMQ_NODENAME="rabbit-$port@localhost" RABBITMQ_NODE_PORT="$port" RABBITMQ_DIST_PORT="$distribution" \
        RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_CONF_ENV_FILE="$dir/env.conf" \
        RABBITMQ_CONFIG_FILE="$dir/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$dir/plugins" \
        RABBITMQ_MNESIA_BASE="$dir/data" RABBITMQ_LOG_BASE="$dir" RABBITMQ_ALLOW_INPUT=true \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 2:2 +A 8 -kernel inet_dist_use_interface {127,0,0,1}" \
        ERL_CRASH_DUMP=/dev/null "$bin" -noinput -private_run "$dir" >>"$tmp/rabbitmq.log" 2>&1 </dev/null 9>&- &
    pid=$!
    set +m
    echo "$pid" >"$tmp/rabbitmq.pid"
    local deadline=$((SECONDS + 180))
    while [ "$SECONDS" -lt "$deadline" ]; do
        kill -0 "$pid" 2>/dev/null || break
        # Its own log says that it is this server that is ready, not another one on that port.
        if grep -q 'Server startup complete' "$dir/log" 2>/dev/null; then
            return 0
        fi
        sleep 0.1
    done
    say "RabbitMQ was not ready within three minutes or ended; the last lines of its logs:"
    tail -n 20 "$tmp/rabbitmq.log" "$dir/log" >&2
    stop KILL
    return 1
}

# rabbitmqctl, which stands beside the script that starts a node. It finds the node by the same names, and the cookie at home.
ctl() {
    "${as[@]+"${as[@]}"}" env -u ERL_FLAGS -u ERL_AFLAGS -u ERL_ZFLAGS -u ERL_LIBS \
        HOME="$dir" ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$mapper" RABBITMQ_CONF_ENV_FILE="$dir/env.conf" \
        ERL_CRASH_DUMP=/dev/null "${bin%/*}/rabbitmqctl" --quiet --node "rabbit-$port@localhost" "$@" </dev/null 9>&-
}

case ${1:-} in
    start) start ;;
    stop) stop TERM ;;
    kill) stop KILL ;;
    restart) stop KILL && start ;;
    pause) running && kill -STOP "$pid" ;;
    resume) running && kill -CONT "$pid" ;;
    ctl) shift && ctl "$@" ;;
    *)
        say "usage: rabbitmq-ctl start | stop | kill | restart | pause | resume | ctl ARG…"
        exit 2
        ;;
esac
CTL
    } >"$tmp/rabbitmq-ctl"
    chmod 755 "$tmp/rabbitmq-ctl"
}
