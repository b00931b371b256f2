# shellcheck shell=bash disable=SC2154 # tmp and as come from common.sh
# Postgres: POSTGRES_URL, and POSTGRES_CTL, a script that restarts this private server for the crash tests.

postgres_given() { [ -n "${POSTGRES_URL:-}" ]; }

postgres_need() {
    local folder
    postgres_bin=
    # The highest version that Debian's packages have put aside, then whatever is in PATH.
    for folder in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5,5nr) ${PATH//:/ }; do
        if [ -x "$folder/postgres" ] && [ -x "$folder/initdb" ] && [ -x "$folder/createdb" ] &&
            [ -x "$folder/pg_isready" ]; then
            postgres_bin=$folder
            return 0
        fi
    done
    return 1
}

postgres_install() {
    # Keep the package from making and starting a cluster of its own.
    local folder=/etc/postgresql-common/createcluster.d rc=0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        mkdir -p "$folder"
        echo 'create_main_cluster = false' >"$folder/idempotency-tests.conf"
        apt_install postgresql || rc=$?
        rm -f "$folder/idempotency-tests.conf"
        return "$rc"
    fi
    say "no Postgres server found (initdb and postgres in PATH or /usr/lib/postgresql/*/bin)."
    say "Install it, for example:"
    say "  Debian, Ubuntu: sudo apt-get install --no-install-recommends postgresql"
    say "  Fedora:         sudo dnf install postgresql-server"
    say "  macOS:          brew install postgresql, and its bin folder in PATH"
    say "or set POSTGRES_URL=postgres://user@host:port/database to use a running one."
    return 1
}

postgres_start() {
    local user try
    postgres_dir=$tmp/postgres
    user=$(server_user postgres)
    as_user "$user"
    # The server's own settings must not come from whoever runs the tests (PGDATA, PGOPTIONS, PGPASSWORD, …).
    # shellcheck disable=SC2086
    unset ${!PG@}
    mkdir -m 700 "$postgres_dir"
    [ ${#as[@]} = 0 ] || chown "$(id -u "$user"):$(id -g "$user")" "$postgres_dir"
    if ! (cd "$tmp" && "${as[@]+"${as[@]}"}" "$postgres_bin/initdb" --auth=trust -U postgres --no-sync \
        --encoding=UTF8 --locale=C -D "$postgres_dir/data") >"$tmp/initdb.log" 2>&1 </dev/null; then
        tail -n 20 "$tmp/initdb.log" >&2
        die "initdb failed (as $user, $postgres_bin)"
    fi
    cat >>"$postgres_dir/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '$postgres_dir'
max_connections = 600
max_prepared_transactions = 0
fsync = on
full_page_writes = off
log_min_messages = warning
CONF
    postgres_write_ctl
    for try in 1 2 3 4 5; do
        postgres_port=$(free_port) || die "no free port on loopback"
        # The last setting of a name counts.
        echo "port = $postgres_port" >>"$postgres_dir/data/postgresql.conf"
        echo "$postgres_port" >"$tmp/postgres.port"
        "$tmp/postgres-ctl" start 2>"$tmp/postgres-start.log" && break
        # Somebody took the port in between: try another one. Anything else is an error.
        if [ "$try" = 5 ] || ! grep -q 'Address already in use\|could not bind' "$tmp/postgres-start.log"; then
            cat "$tmp/postgres-start.log" >&2
            die "Postgres did not start"
        fi
        : >"$postgres_dir/log"
    done
    "$postgres_bin/createdb" -h 127.0.0.1 -p "$postgres_port" -U postgres -w idempotency ||
        die "createdb failed"
    publish POSTGRES_URL "postgres://postgres@127.0.0.1:$postgres_port/idempotency"
    publish POSTGRES_CTL "$tmp/postgres-ctl"
}

postgres_stop() {
    local pid
    [ -n "${postgres_dir:-}" ] && pid=$(cat "$tmp/postgres.pid" 2>/dev/null) && [ -n "$pid" ] || return 0
    # Its data is thrown away: no need for a checkpoint.
    end_process "$pid" "$postgres_dir/data" QUIT
}

# The helper that starts and stops this server, for us and for tests. It waits until what it did is done.
postgres_write_ctl() {
    {
        echo '#!/usr/bin/env bash'
        echo '# Controls the private Postgres of one run of tests/run: start | stop-immediate | restart-immediate'
        printf 'tmp=%q dir=%q bin=%q\n' "$tmp" "$postgres_dir" "$postgres_bin"
        # An empty array must stay empty: no `printf` without words.
        if [ ${#as[@]} = 0 ]; then echo 'as=()'; else printf 'as=(%s)\n' "$(printf '%q ' "${as[@]}")"; fi
        declare -f say alive end_process
        cat <<'CTL'
set -u
cd "$tmp" || exit 1
# One at a time, where flock exists. The server must not inherit the lock.
exec 9>>"$tmp/postgres.lock"
if command -v flock >/dev/null && ! flock -w 60 9; then
    say "postgres-ctl: another call holds the lock"
    exit 1
fi
# A signal must not come between the start of the server and the note of its process id.
trap : INT TERM HUP
pid=$(cat "$tmp/postgres.pid" 2>/dev/null)
port=$(cat "$tmp/postgres.port")

running() { [ -n "$pid" ] && alive "$pid" "$dir/data"; }

stop_immediate() { ! running || end_process "$pid" "$dir/data" QUIT; }

start() {
    ! running || return 0
    # Its own process group: Ctrl-C in a terminal is for the tests, the server is stopped after them.
    set -m
    "${as[@]+"${as[@]}"}" "$bin/postgres" -D "$dir/data" >>"$dir/log" 2>&1 </dev/null 9>&- &
    pid=$!
    set +m
    echo "$pid" >"$tmp/postgres.pid"
    local deadline=$((SECONDS + 30))
    while [ "$SECONDS" -lt "$deadline" ]; do
        kill -0 "$pid" 2>/dev/null || break
        # Line 8 of the server's own file says that it is this server that is ready, not another one on that port.
        if [ "$(sed -n 1p "$dir/data/postmaster.pid" 2>/dev/null)" = "$pid" ] &&
            [ "$(sed -n 8p "$dir/data/postmaster.pid" 2>/dev/null | tr -d ' ')" = ready ] &&
            "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; then
            return 0
        fi
        sleep 0.05
    done
    say "Postgres was not ready within 30 s or ended; the last lines of its log:"
    tail -n 20 "$dir/log" >&2
    end_process "$pid" "$dir/data" QUIT
    return 1
}

case ${1:-} in
    start) start ;;
    stop-immediate) stop_immediate ;;
    restart-immediate) stop_immediate && start ;;
    *)
        say "usage: postgres-ctl start | stop-immediate | restart-immediate"
        exit 2
        ;;
esac
CTL
    } >"$tmp/postgres-ctl"
    chmod 755 "$tmp/postgres-ctl"
}
