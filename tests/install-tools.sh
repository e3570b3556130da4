#!/bin/sh
# What the tests need from the system: a PostgreSQL server, pgbouncer, a browser, curl, kubectl and promtool. Installed from Debian where that is possible.
set -eu

missing=""
[ -x "${POSTGRESQL_BIN:-}/initdb" ] || command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
    missing="$missing postgresql"
PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null 2>&1 || missing="$missing pgbouncer"
command -v chromium-headless-shell >/dev/null 2>&1 || command -v chromium >/dev/null 2>&1 || missing="$missing chromium-headless-shell"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
command -v kubectl >/dev/null 2>&1 || missing="$missing kubernetes-client"
command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
    echo "The tests need:$missing. Please install them (on Debian, as root: apt-get install$missing)." >&2
    exit 1
fi
echo "Installing$missing for the tests ..."
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -qq -y --no-install-recommends $missing >/dev/null
