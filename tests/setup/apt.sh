#!/usr/bin/env bash
# Install the Debian packages that the named programs or files come from, where they are missing.
# Usage: apt.sh PROGRAM=PACKAGE | /FILE=PACKAGE …
set -eu

missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || [ -e "${pair%%=*}" ] || missing+=("${pair#*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "these packages are needed: ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# One at a time: parts of `make test` run side by side.
exec 9>/run/lock/watm-apt
flock 9
apt-get update -q
apt-get install -y -q --no-install-recommends "${missing[@]}"
