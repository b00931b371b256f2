# shellcheck shell=bash disable=SC2154 # tmp, as and postgres_* come from common.sh and postgres.sh
# PgBouncer in transaction mode before the Postgres of POSTGRES_URL: PGBOUNCER_URL. After postgres in `servers`.
#
# Every database of that server can be reached through it, so that a test may have server connections of its own. A
# given one must stand before the same server, in transaction mode, with `ignore_startup_parameters =
# extra_float_digits`, and allow `SHOW CONFIG` to the user of the URL.

pgbouncer_given() { [ -n "${PGBOUNCER_URL:-}" ]; }

pgbouncer_need() {
    pgbouncer_bin=$(PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v pgbouncer) && [ -n "$pgbouncer_bin" ]
}

pgbouncer_install() {
    apt_install pgbouncer && return 0
    say "no PgBouncer found (pgbouncer in PATH or /usr/sbin). Install it, for example:"
    say "  Debian, Ubuntu: sudo apt-get install --no-install-recommends pgbouncer"
    say "  Fedora:         sudo dnf install pgbouncer"
    say "  macOS:          brew install pgbouncer"
    say "or set PGBOUNCER_URL=postgres://user@host:port/database to use a running one, with POSTGRES_URL for the"
    say "server behind it."
    return 1
}

# The parts of POSTGRES_URL: postgres://user:password@host:port/database?… into the variables behind_*.
pgbouncer_parse() {
    local rest=${POSTGRES_URL#*://} authority
    rest=${rest%%\?*}
    authority=${rest%%/*}
    behind_database=${rest#*/}
    [ "$behind_database" != "$rest" ] || behind_database=postgres
    behind_user=postgres behind_password=
    case $authority in
        *@*)
            behind_user=${authority%@*}
            authority=${authority##*@}
            case $behind_user in
                *:*)
                    behind_password=${behind_user#*:}
                    behind_user=${behind_user%%:*}
                    ;;
            esac
            ;;
    esac
    behind_host=${authority%:*} behind_port=${authority##*:}
    [ "$behind_port" != "$authority" ] || behind_port=5432
}

pgbouncer_start() {
    local user version statements=''
    pgbouncer_dir=$tmp/pgbouncer
    user=$(server_user postgres)
    as_user "$user"
    pgbouncer_parse
    mkdir -m 700 "$pgbouncer_dir"
    # Prepared statements are followed from server connection to server connection since 1.21.
    version=$("$pgbouncer_bin" --version | sed -nE '1s/[^0-9]*([0-9]+)\.([0-9]+).*/\1 \2/p')
    if [ "$(awk '{ print ($1 > 1 || $2 >= 21) }' <<<"$version")" = 1 ]; then
        statements='max_prepared_statements = 200'
    fi
    printf '"%s" "%s"\n' "$behind_user" "$behind_password" >"$pgbouncer_dir/users"
    for _ in 1 2 3 4 5; do
        pgbouncer_port=$(free_port) || die "no free port on loopback"
        cat >"$pgbouncer_dir/pgbouncer.ini" <<INI
[databases]
* = host=$behind_host port=$behind_port user=$behind_user
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $pgbouncer_port
unix_socket_dir =
auth_type = trust
auth_file = $pgbouncer_dir/users
admin_users = $behind_user
pool_mode = transaction
default_pool_size = 40
server_idle_timeout = 3
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
$statements
INI
        [ ${#as[@]} = 0 ] || chown -R "$(id -u "$user"):$(id -g "$user")" "$pgbouncer_dir"
        : >"$tmp/pgbouncer.log"
        # Its own process group: Ctrl-C in a terminal is for the tests, the server is stopped after them.
        set -m
        (cd "$tmp" && exec "${as[@]+"${as[@]}"}" "$pgbouncer_bin" "$pgbouncer_dir/pgbouncer.ini") \
            >"$tmp/pgbouncer.log" 2>&1 </dev/null &
        pgbouncer_pid=$!
        set +m
        if pgbouncer_wait; then
            publish PGBOUNCER_URL "postgres://$behind_user@127.0.0.1:$pgbouncer_port/$behind_database"
            return 0
        fi
        pgbouncer_stop
        grep -qi 'in use' "$tmp/pgbouncer.log" || break
    done
    tail -n 20 "$tmp/pgbouncer.log" >&2
    die "PgBouncer did not start (as $user, $pgbouncer_bin)"
}

# Until it says itself that it listens: somebody else may have taken the port.
pgbouncer_wait() {
    local deadline=$((SECONDS + 10))
    while [ "$SECONDS" -lt "$deadline" ] && kill -0 "$pgbouncer_pid" 2>/dev/null; do
        if grep -q "listening on 127.0.0.1:$pgbouncer_port" "$tmp/pgbouncer.log" &&
            grep -q "process up" "$tmp/pgbouncer.log"; then
            return 0
        fi
        sleep 0.05
    done
    return 1
}

pgbouncer_stop() {
    [ -n "${pgbouncer_pid:-}" ] || return 0
    # SIGTERM is an immediate end, also before 1.23.
    end_process "$pgbouncer_pid" "$pgbouncer_dir/pgbouncer.ini" TERM
    pgbouncer_pid=
}
