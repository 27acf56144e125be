#!/bin/sh
# Runs a program for Windows, with an empty installation in $WINEPREFIX or build/wine/prefix.
# build/wine has a library that wine lacks; see `make cross`.
set -eu
build="$(cd "$(dirname "$0")/../.." && pwd)/build/wine"
mkdir -p "$build"
export WINEPREFIX="${WINEPREFIX:-$build/prefix}"
export WINEPATH="Z:$build"
# Silences wine's messages and its offers to install parts for browsers and .NET.
export WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
exec /usr/lib/wine/wine64 "$@"
