#!/bin/sh
# Runs a command with its temporary files in memory where that is possible: the tests write some hundred MB, most of it
# databases that live for a second. Otherwise, and where TMPDIR is set, the command is run as it is.
set -u

enough() { # $1: KiB
	[ "${1:-0}" -gt 4000000 ]
}

if [ -z "${TMPDIR:-}" ] &&
	enough "$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" &&
	enough "$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null)" &&
	folder=$(mktemp -d /dev/shm/sluice-tests.XXXXXX); then
	chmod 755 "$folder" # as root, PostgreSQL runs as another user
	trap 'rm -rf "$folder"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	# Containers often forbid to execute files there, which some tests do.
	printf '#!/bin/sh\n' >"$folder/executable" && chmod +x "$folder/executable"
	if "$folder/executable" 2>/dev/null; then export TMPDIR="$folder"; fi
fi
"$@"
