#!/bin/sh
# Run a program for Windows, with an empty installation in $WINEPREFIX or build/wine/prefix.
# What wine lacks is in build/wine, see `make cross`.
set -eu
build="$(cd "$(dirname "$0")/../.." && pwd)/build/wine"
mkdir -p "$build"
export WINEPREFIX="${WINEPREFIX:-$build/prefix}"
export WINEPATH="Z:$build"
# No messages of wine's own, and no offers to install what is for browsers and .NET.
export WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
exec /usr/lib/wine/wine64 "$@"
