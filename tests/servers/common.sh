# shellcheck shell=bash
# What every server file needs. Sourced by tests/run, which has set `tmp` (the temporary folder of this run).
#
# A server file `tests/servers/NAME.sh` defines, for the NAME listed in `servers` of tests/run:
#   NAME_given    true when the environment already names a server: nothing is installed, started or stopped
#   NAME_need     finds the programs; false when they are missing
#   NAME_install  brings them, or says exactly what to install and returns non-zero
#   NAME_start    starts a private server on loopback as an unprivileged user and calls `publish VARIABLE VALUE`
#   NAME_await    only where NAME_start merely begins the start: waits until the server is up, and publishes then
#   NAME_stop     stops it and waits for it; harmless when it never started

say() { printf 'tests/run: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

published=()

# Exports a variable to the tests and remembers its name for `--shell`.
publish() {
    export "$1=$2"
    published+=("$1")
}

# The user that servers run as: nobody special when we are root, else ourselves.
server_user() { # WISHED_USER
    if [ "$(id -u)" != 0 ]; then
        id -un
    elif id -u "$1" >/dev/null 2>&1; then
        echo "$1"
    else
        echo nobody
    fi
}

# The words that run a program as that user, in the array `as`.
as_user() { # USER
    as=()
    [ "$(id -u)" = 0 ] || return 0
    if command -v setpriv >/dev/null; then
        as=(setpriv "--reuid=$(id -u "$1")" "--regid=$(id -g "$1")" --clear-groups)
    elif command -v runuser >/dev/null; then
        as=(runuser -u "$1" --)
    else
        die "needs setpriv or runuser (util-linux) to start servers as an unprivileged user"
    fi
}

# A temporary folder that other users can pass through, and whose path is short enough for Unix sockets.
make_tmp() {
    local parent
    for parent in "${TMPDIR:-/tmp}" /tmp; do
        tmp=$(mktemp -d "${parent%/}/idempotency.XXXXXX") || continue
        chmod 711 "$tmp"
        as_user nobody
        if [ "${#tmp}" -le 70 ] && "${as[@]+"${as[@]}"}" test -x "$tmp"; then
            return 0
        fi
        rmdir "$tmp"
    done
    tmp=
    die "no usable temporary folder (tried ${TMPDIR:-/tmp} and /tmp)"
}

# A port nobody listens on just now, below the ports that outgoing connections get. Others may still take it: retry.
free_port() {
    local port try
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        port=$((15000 + (RANDOM + try) % 16000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    return 1
}

# True while the process runs and is the one whose command line names MARK (a process id may be reused).
alive() { # PID MARK
    kill -0 "$1" 2>/dev/null || return 1
    [ -r "/proc/$1/cmdline" ] || return 0
    # A process that has exited and was not reaped has an empty command line.
    { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -- "$2"
}

# Sends SIGNAL, waits up to ten seconds, then kills that process.
end_process() { # PID MARK SIGNAL
    local try
    alive "$1" "$2" || return 0
    kill "-$3" "$1" 2>/dev/null || true
    for try in {1..100}; do
        alive "$1" "$2" || return 0
        sleep 0.1
    done
    say "process $1 did not stop within 10 s: killed"
    kill -9 "$1" 2>/dev/null || true
    for try in {1..20}; do
        alive "$1" "$2" || return 0
        sleep 0.1
    done
}

# Installs Debian packages without letting them start services of their own.
apt_install() { # PACKAGE…
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    say "installing $* (apt-get)"
    local policy=/usr/sbin/policy-rc.d own='' rc=0
    if [ ! -e "$policy" ]; then
        own=1
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    local options=(-qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
    {
        DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" update &&
            DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" install -y --no-install-recommends "$@"
    } >"$tmp/apt.log" 2>&1 </dev/null || rc=$?
    [ -z "$own" ] || rm -f "$policy"
    if [ "$rc" != 0 ]; then
        tail -n 20 "$tmp/apt.log" >&2
        say "apt-get failed ($rc)"
    fi
    return "$rc"
}

# What compiles librdkafka, for the feature `kafka`: a C++ compiler and make.
build_tools() {
    if command -v make >/dev/null && { command -v "${CXX:-c++}" || command -v g++ || command -v clang++; } >/dev/null; then
        return 0
    fi
    apt_install make g++ && return 0
    say "needs make and a C++ compiler, for all features (Debian, Ubuntu: apt-get install make g++)"
    return 1
}
