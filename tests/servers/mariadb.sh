# shellcheck shell=bash disable=SC2154 # tmp and as come from common.sh
# MariaDB: MYSQL_URL, and MYSQL_CTL, a script that restarts this private server for the crash tests.

mariadb_given() { [ -n "${MYSQL_URL:-}" ]; }

mariadb_need() {
    local name found
    # The server is in sbin on Debian, which is not in everybody's PATH.
    for name in mariadbd mariadb-install-db mariadb mariadb-admin; do
        found=$(PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/local/bin" command -v "$name") || return 1
        printf -v "mariadb_${name//-/_}" %s "$found"
    done
}

mariadb_install() {
    # apt_install keeps the package from starting a server of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt_install mariadb-server
        return
    fi
    say "no MariaDB server found (mariadbd, mariadb-install-db, mariadb and mariadb-admin)."
    say "Install it, for example:"
    say "  Debian, Ubuntu: sudo apt-get install --no-install-recommends mariadb-server"
    say "  Fedora:         sudo dnf install mariadb-server"
    say "  macOS:          brew install mariadb"
    say "or set MYSQL_URL=mysql://user@host:port/database to use a running one, as a user who may create databases."
    return 1
}

mariadb_start() {
    local user try
    mariadb_dir=$tmp/mariadb
    # The user's folder for temporary files may be closed to the server's user.
    local -x TMPDIR=$mariadb_dir
    user=$(server_user mysql)
    as_user "$user"
    mkdir -m 700 "$mariadb_dir"
    [ ${#as[@]} = 0 ] || chown "$(id -u "$user"):$(id -g "$user")" "$mariadb_dir"
    # The server's settings must not come from whoever runs the tests: no option files.
    if ! (cd "$tmp" && "${as[@]+"${as[@]}"}" "$mariadb_mariadb_install_db" --no-defaults --skip-test-db \
        --auth-root-authentication-method=normal --datadir="$mariadb_dir/data") >"$tmp/mariadb-install.log" 2>&1 </dev/null; then
        tail -n 20 "$tmp/mariadb-install.log" >&2
        die "mariadb-install-db failed (as $user)"
    fi
    mariadb_write_ctl
    for try in 1 2 3 4 5; do
        mariadb_port=$(free_port) || die "no free port on loopback"
        echo "$mariadb_port" >"$tmp/mariadb.port"
        "$tmp/mariadb-ctl" start 2>"$tmp/mariadb-start.log" && break
        # Somebody took the port in between: try another one. Anything else is an error.
        if [ "$try" = 5 ] || ! grep -qi 'Address already in use' "$tmp/mariadb-start.log"; then
            cat "$tmp/mariadb-start.log" >&2
            die "MariaDB did not start"
        fi
        : >"$mariadb_dir/log"
    done
    "$mariadb_mariadb" --no-defaults --socket="$mariadb_dir/socket" --user=root >"$tmp/mariadb-init.log" 2>&1 <<'SQL' || {
CREATE DATABASE idempotency;
CREATE USER idempotency@'127.0.0.1';
GRANT ALL ON *.* TO idempotency@'127.0.0.1';
SQL
        cat "$tmp/mariadb-init.log" >&2
        die "the first statements on MariaDB failed"
    }
    publish MYSQL_URL "mysql://idempotency@127.0.0.1:$mariadb_port/idempotency"
    publish MYSQL_CTL "$tmp/mariadb-ctl"
}

mariadb_stop() {
    local pid
    [ -n "${mariadb_dir:-}" ] && pid=$(cat "$tmp/mariadb.pid" 2>/dev/null) && [ -n "$pid" ] || return 0
    # Its data is thrown away: no need for a clean end.
    end_process "$pid" "$mariadb_dir/data" KILL
}

# The helper that starts and stops this server, for us and for tests. It waits until what it did is done.
mariadb_write_ctl() {
    {
        echo '#!/usr/bin/env bash'
        echo '# Controls the private MariaDB of one run of tests/run: start | stop-immediate | restart-immediate'
        printf 'tmp=%q dir=%q server=%q admin=%q\n' "$tmp" "$mariadb_dir" "$mariadb_mariadbd" "$mariadb_mariadb_admin"
        # An empty array must stay empty: no `printf` without words.
        if [ ${#as[@]} = 0 ]; then echo 'as=()'; else printf 'as=(%s)\n' "$(printf '%q ' "${as[@]}")"; fi
        declare -f say alive end_process
        cat <<'CTL'
set -u
cd "$tmp" || exit 1
# One at a time, where flock exists. The server must not inherit the lock.
exec 9>>"$tmp/mariadb.lock"
if command -v flock >/dev/null && ! flock -w 60 9; then
    say "mariadb-ctl: another call holds the lock"
    exit 1
fi
# A signal must not come between the start of the server and the note of its process id.
trap : INT TERM HUP
pid=$(cat "$tmp/mariadb.pid" 2>/dev/null)
port=$(cat "$tmp/mariadb.port")

running() { [ -n "$pid" ] && alive "$pid" "$dir/data"; }

stop_immediate() { ! running || end_process "$pid" "$dir/data" KILL; }

start() {
    ! running || return 0
    rm -f "$dir/socket"
    # Its own process group: Ctrl-C in a terminal is for the tests, the server is stopped after them.
    set -m
    "${as[@]+"${as[@]}"}" "$server" --no-defaults --datadir="$dir/data" --socket="$dir/socket" \
        --tmpdir="$dir" --bind-address=127.0.0.1 --port="$port" --skip-name-resolve --max-connections=500 \
        --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=1 --innodb-doublewrite=0 \
        --character-set-server=utf8mb4 >>"$dir/log" 2>&1 </dev/null 9>&- &
    pid=$!
    set +m
    echo "$pid" >"$tmp/mariadb.pid"
    local deadline=$((SECONDS + 30))
    while [ "$SECONDS" -lt "$deadline" ]; do
        kill -0 "$pid" 2>/dev/null || break
        # Asked by its own socket: it is this server that is ready, not another one on that port. The client may not
        # pass through the folder of another user, so it asks as that user.
        if [ -S "$dir/socket" ] && "${as[@]+"${as[@]}"}" "$admin" --no-defaults --socket="$dir/socket" --user=root \
            --connect-timeout=5 ping >/dev/null 2>&1; then
            return 0
        fi
        sleep 0.05
    done
    say "MariaDB was not ready within 30 s or ended; the last lines of its log:"
    tail -n 20 "$dir/log" >&2
    end_process "$pid" "$dir/data" KILL
    return 1
}

case ${1:-} in
    start) start ;;
    stop-immediate) stop_immediate ;;
    restart-immediate) stop_immediate && start ;;
    *)
        say "usage: mariadb-ctl start | stop-immediate | restart-immediate"
        exit 2
        ;;
esac
CTL
    } >"$tmp/mariadb-ctl"
    chmod 755 "$tmp/mariadb-ctl"
}
