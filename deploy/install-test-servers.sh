#!/bin/sh
# Install what the tests start private servers from: the binaries of PostgreSQL, RabbitMQ and Redis;
# libfaketime, with which they skew a process's clock, and a C compiler, with which they make one for
# a server; node, which runs node actions; openssl; curl and jq, which the documentation calls;
# systemd, whose systemd-analyze reads our units; prometheus, whose promtool tries our alerts; zsh and
# fish, which complete our commands; and Chromium, which looks at the admin's pages.
# Only as root on Debian and Ubuntu, and without starting or enabling a system service; elsewhere
# it says what to install. Quick, and silent, when all is there.
set -eu

has() { # has <file> <directory>...: on PATH or in one of the directories
    command -v "$1" >/dev/null 2>&1 && return 0
    file=$1
    shift
    for directory in "$@"; do
        [ -e "$directory/$file" ] && return 0
    done
    return 1
}

missing=""
services=""
has initdb /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
    /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin ||
    { missing="$missing postgresql"; services="$services postgresql"; }
has rabbitmq-server /usr/sbin /usr/lib/rabbitmq/bin \
    /opt/homebrew/opt/rabbitmq/sbin /usr/local/opt/rabbitmq/sbin ||
    { missing="$missing rabbitmq-server"; services="$services rabbitmq-server"; }
has redis-server /opt/homebrew/bin /usr/local/bin ||
    { missing="$missing redis-server"; services="$services redis-server"; }
has node /opt/homebrew/bin /usr/local/bin || missing="$missing nodejs"
has openssl /usr/bin || missing="$missing openssl"
has curl /usr/bin || missing="$missing curl"
has jq /usr/bin /opt/homebrew/bin /usr/local/bin || missing="$missing jq"
has promtool /opt/homebrew/bin /usr/local/bin ||
    { missing="$missing prometheus"; services="$services prometheus"; }
has zsh /bin /usr/bin || missing="$missing zsh"
has fish /usr/bin /opt/homebrew/bin /usr/local/bin || missing="$missing fish"
# Ubuntu has no such package: its chromium is a snap
if ! has chromium && ! has google-chrome && grep -qs '^ID=debian' /etc/os-release; then
    missing="$missing chromium"
fi
if [ "$(uname)" = Linux ]; then
    has systemd-analyze /usr/bin || missing="$missing systemd"
    has cc /usr/bin || missing="$missing gcc libc6-dev"
    has libfaketimeMT.so.1 /usr/lib/*/faketime /usr/lib/faketime /usr/local/lib/faketime ||
        missing="$missing libfaketime"
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    if command -v apt-get >/dev/null 2>&1; then
        how="sudo $0"
    elif command -v brew >/dev/null 2>&1; then
        how="brew install postgresql@16 rabbitmq redis node openssl curl jq prometheus"
    else
        how="install them with your package manager"
    fi
    echo "Not installed:$missing. Tests that need them are skipped. To run them: $how" >&2
    exit 0
fi

echo "Installing$missing (about a minute; no service is started or enabled) ..."

# Debian's own switch: with it, no maintainer script may start a service.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
log=$(mktemp)
# shellcheck disable=SC2086  # package names are words
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } \
    >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "Could not install$missing; the whole log is $log" >&2
    exit 1
fi
rm -f "$log"

# Installing also enables them for the next boot. We wanted binaries only.
if command -v systemctl >/dev/null 2>&1; then
    for service in $services; do
        systemctl disable --quiet "$service" >/dev/null 2>&1 || true
    done
fi
