# shellcheck shell=bash disable=SC2154 # tmp and as come from common.sh
# NATS with JetStream: NATS_URL, and NATS_CTL, a script that stops, kills, pauses and starts this private server.

nats_given() { [ -n "${NATS_URL:-}" ]; }

nats_need() {
    nats_bin=$(PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v nats-server) && [ -n "$nats_bin" ]
}

nats_install() {
    apt_install nats-server && return 0
    say "no NATS server found (nats-server in PATH or /usr/sbin). Install it, for example:"
    say "  Debian, Ubuntu: sudo apt-get install --no-install-recommends nats-server"
    say "  macOS:          brew install nats-server"
    say "or set NATS_URL=nats://host:port to use a running one with JetStream."
    return 1
}

nats_start() {
    local user try
    nats_dir=$tmp/nats
    user=$(server_user nats)
    as_user "$user"
    mkdir -m 700 "$nats_dir"
    nats_write_ctl
    for try in 1 2 3 4 5; do
        nats_port=$(free_port) || die "no free port on loopback"
        # The name is how the server is recognised. Every write is synced by the file system alone: it outlives the
        # process, which is what the tests kill.
        cat >"$nats_dir/conf" <<CONF
server_name: "$(basename "$tmp")-$nats_port"
listen: "127.0.0.1:$nats_port"
max_payload: 1MB
jetstream { store_dir: "$nats_dir/data", max_memory_store: 64MB, max_file_store: 1GB }
CONF
        [ ${#as[@]} = 0 ] || chown -R "$(id -u "$user"):$(id -g "$user")" "$nats_dir"
        echo "$nats_port" >"$tmp/nats.port"
        "$tmp/nats-ctl" start 2>"$tmp/nats-start.log" && break
        # Somebody took the port in between: try another one. Anything else is an error.
        if [ "$try" = 5 ] || ! grep -qi 'address already in use' "$tmp/nats-start.log"; then
            cat "$tmp/nats-start.log" >&2
            die "NATS did not start (as $user, $nats_bin)"
        fi
        : >"$tmp/nats.log"
    done
    publish NATS_URL "nats://127.0.0.1:$nats_port"
    publish NATS_CTL "$tmp/nats-ctl"
}

nats_stop() {
    local pid
    [ -n "${nats_dir:-}" ] && pid=$(cat "$tmp/nats.pid" 2>/dev/null) && [ -n "$pid" ] || return 0
    # Its data is thrown away: no need for a clean end. A paused one does not hear anything else.
    end_process "$pid" "$nats_dir/conf" KILL
}

# The helper that starts and stops this server, for us and for tests. It waits until what it did is done.
nats_write_ctl() {
    {
        echo '#!/usr/bin/env bash'
        echo '# Controls the private NATS of one run of tests/run: start | stop | kill | restart | pause | resume'
        printf 'tmp=%q dir=%q bin=%q\n' "$tmp" "$nats_dir" "$nats_bin"
        # An empty array must stay empty: no `printf` without words.
        if [ ${#as[@]} = 0 ]; then echo 'as=()'; else printf 'as=(%s)\n' "$(printf '%q ' "${as[@]}")"; fi
        declare -f say alive end_process
        cat <<'CTL'
set -u
cd "$tmp" || exit 1
# One at a time, where flock exists. The server must not inherit the lock.
exec 9>>"$tmp/nats.lock"
if command -v flock >/dev/null && ! flock -w 60 9; then
    say "nats-ctl: another call holds the lock"
    exit 1
fi
# A signal must not come between the start of the server and the note of its process id.
trap : INT TERM HUP
pid=$(cat "$tmp/nats.pid" 2>/dev/null)
port=$(cat "$tmp/nats.port")

running() { [ -n "$pid" ] && alive "$pid" "$dir/conf"; }

stop() {
    running || return 0
    kill -CONT "$pid" 2>/dev/null
    end_process "$pid" "$dir/conf" "$1"
}

# The server speaks first and says its name: it is this one that is ready, not another one on that port.
ready() {
    local info
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 1
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
    IFS= read -r -t 2 info <&3
    exec 3>&-
    grep -qF "\"server_name\":\"$(basename "$tmp")-$port\"" <<<"$info" && grep -qF '"jetstream":true' <<<"$info"
}

start() {
    ! running || return 0
    # Its own process group: Ctrl-C in a terminal is for the tests, the server is stopped after them.
    set -m
    "${as[@]+"${as[@]}"}" "$bin" --config "$dir/conf" >>"$tmp/nats.log" 2>&1 </dev/null 9>&- &
    pid=$!
    set +m
    echo "$pid" >"$tmp/nats.pid"
    local deadline=$((SECONDS + 30))
    while [ "$SECONDS" -lt "$deadline" ]; do
        kill -0 "$pid" 2>/dev/null || break
        ! ready || return 0
        sleep 0.05
    done
    say "NATS was not ready within 30 s or ended; the last lines of its log:"
    tail -n 20 "$tmp/nats.log" >&2
    end_process "$pid" "$dir/conf" KILL
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
        say "usage: nats-ctl start | stop | kill | restart | pause | resume"
        exit 2
        ;;
esac
CTL
    } >"$tmp/nats-ctl"
    chmod 755 "$tmp/nats-ctl"
}
