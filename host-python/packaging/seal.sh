#!/bin/sh
# Seals the modules that a wheel carries: seal.sh WATM STATE PACKAGED NAME=MODULE...
#
# With WATM_RELEASE_KEY, WATM_ROOT and WATM_RELEASE (EPOCH.SEQUENCE), as a release under that root.
# Otherwise under a root for development whose private keys are made in the folder STATE and stay
# there; it is made anew where it does not allow what a module may have, as it does if it is older than
# one of the capabilities. Each NAME.json beside this file says what that module may have. A module
# that has not changed is not sealed again, since that would change its bytes, unless its seal is
# broken.
set -eu
umask 022

watm=$1 state=$2 packaged=$3
shift 3
here=$(dirname "$0")
mkdir -p "$state" "$packaged"

# Within two years, beyond which a host says that a seal is for too long.
year=$(date -u +%Y)
expires=$((year + 2))-$(date -u +%m)-01

public_key() {
    "$watm" keygen "$1" --unencrypted --json | sed 's/.*"public":"\([0-9a-f]*\)".*/\1/'
}

if [ -n "${WATM_RELEASE_KEY:-}" ]; then
    root=${WATM_ROOT:?is missing: the root that WATM_RELEASE_KEY seals under}
    release=${WATM_RELEASE:?is missing: the number of this release, EPOCH.SEQUENCE}
    key=$WATM_RELEASE_KEY
else
    root=$state/root.watm key=$state/release.key
    release=1.$(date -u +%s)
    if [ ! -f "$root" ]; then
        fresh=yes
        rm -f "$state/root.key" "$key"
        own=$(public_key "$state/root.key")
        sealing=$(public_key "$key")
        cat > "$state/root.json" <<END
{
  "expires": "$((year + 20))-01-01", "threshold": 1, "keys": ["$own"],
  "delegations": [{"name": "development", "threshold": 1, "keys": ["$sealing"], "names": ["watm/*"]}]
}
END
        "$watm" root new "$state/root.json" --output "$root.new" --key "$state/root.key" > "$state/root.txt"
        mv "$root.new" "$root"
    fi
fi

cmp -s "$root" "$packaged/root.watm" || cp "$root" "$packaged/root.watm"

for each in "$@"; do
    name=${each%%=*} module=${each#*=}
    # The inputs of the seal.
    { cat "$module" "$here/$name.json" "$root"; echo "$year ${WATM_RELEASE_KEY:+$key $release}"; } > "$state/$name.from.new"
    if [ -f "$packaged/$name.wasm" ] && cmp -s "$state/$name.from.new" "$state/$name.from" &&
        "$watm" verify "$packaged/$name.wasm" --root "$root" > "$state/$name.txt" 2>&1; then
        rm "$state/$name.from.new"
        continue
    fi
    sed -e "s/@RELEASE@/$release/" -e "s/@EXPIRES@/$expires/" "$here/$name.json" > "$state/$name.json"
    "$watm" seal "$module" --manifest "$state/$name.json" --root "$root" --key "$key" \
        --output "$packaged/$name.wasm.new" > "$state/$name.txt"
    if ! "$watm" verify "$packaged/$name.wasm.new" --root "$root" > "$state/$name.txt" 2>&1; then
        if [ -n "${WATM_RELEASE_KEY:-}" ] || [ -n "${fresh:-}" ]; then
            cat "$state/$name.txt" >&2
            exit 1
        fi
        rm "$root"
        exec "$0" "$watm" "$state" "$packaged" "$@"
    fi
    mv "$packaged/$name.wasm.new" "$packaged/$name.wasm"
    mv "$state/$name.from.new" "$state/$name.from"
done
