#!/usr/bin/env bash
# Install programs and files that are listed in tests/setup/packages, where they are missing.
# Usage: apt.sh need|want PROGRAM|/FILE …
# Without root, or without apt-get, `need` fails and `want` says what is missing: tests that need it
# skip themselves (tests/support/watm_test_support/needs.py).
set -eu

manner=$1
shift
table=$(dirname "$0")/packages
missing=() packages=()
for name in "$@"; do
    package=$(awk -v name="$name" '$1 == name { print $2 }' "$table")
    [ -n "$package" ] || { echo "$name is not in $table" >&2; exit 2; }
    command -v "$name" >/dev/null || [ -e "$name" ] || { missing+=("$name"); packages+=("$package"); }
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "missing: ${missing[*]} (Debian packages: ${packages[*]})" >&2
    [ "$manner" = want ]
    exit
fi
export DEBIAN_FRONTEND=noninteractive
# The lock admits one process at a time, because parts of `make test` run in parallel.
exec 9>/run/lock/watm-apt
flock 9
apt-get update -q
apt-get install -y -q --no-install-recommends "${packages[@]}"
