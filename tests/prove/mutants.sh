#!/usr/bin/env bash
# Breaks the code in one place after another, and says where no test fails: mutants.sh [PART]. Without
# a PART: each of them. README.md beside this file says more.
set -eu
wanted=${1-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
made=$root/build/prove/mutants
tree=$made/tree
# Some mutants take this folder for the state of a test.
export XDG_STATE_HOME=$made/state-of-user

# PART WORKSPACE PACKAGE TESTS FILE…: files of the package, as globs from the workspace, and which of its
# tests are to notice. TESTS may name features too.
part() {
    local part=$1 workspace=$2 package=$3 tests=() files=()
    if [ -n "$wanted" ] && [ "$wanted" != "$part" ]; then return; fi
    known=yes
    for test in $4; do
        case $test in
        --features=*) tests+=("--cargo-arg=$test") ;;
        *) tests+=("--cargo-test-arg=$test") ;;
        esac
    done
    shift 4
    for file in "$@"; do files+=(--file "$file"); done
    mkdir -p "$made/$part"
    # An interrupted run may have left a program of a mutant, which is newer than the copied files.
    (cd "$tree/$workspace" && touch "$@")
    # A mutant that survives, or that nothing ends, is an error here too.
    CARGO_TARGET_DIR=$made/target/${workspace/./host} nice -n 15 "$root/build/tools/bin/cargo-mutants" mutants \
        --dir "$tree/$workspace" --config "$here/mutants.toml" --in-place --output "$made/$part" --no-shuffle \
        --package "$package" "${files[@]}" "${tests[@]}" || failed="$failed $part"
}

# Mutants are made in a copy, which keeps what was built for the last time.
rm -rf "$tree"
mkdir -p "$tree"
git -C "$root" ls-files --cached --others --exclude-standard -z |
    tar -C "$root" --null -T - -c | tar -C "$tree" -x

known= failed=
part routes watm watm-wireguard '--test=routes --test=dial' wireguard/src/routes.rs
part proxy watm watm-proxy-protocol '' proxy-protocol/src/{codec,parse,refused,sources,spp,tlv,v1,v2}.rs
part headers watm watm-proxy-header --package=watm-proxy-protocol proxy-header/src/{lib,tlv,write}.rs
part replays watm watm-shadowsocks --lib shadowsocks/src/salts.rs shadowsocks/src/datagram/window.rs
part seal . watm-seal '' runtime/seal/src/{sealed,freshness,release,proof,announcement}.rs runtime/seal/src/state/{encoding,file,files,mod}.rs
part verify . watm-seal '' runtime/seal/src/verify.rs
part grants . watm-policy --features=update runtime/policy/src/grant/{file,mod}.rs
part trust . watm-policy --features=update runtime/policy/src/trust/{built_in,mod,store,update,watch}.rs
# By switches in a copy, since each mutant would be linked with wasmtime.
if [ "${wanted:-cache}" = cache ]; then
    known=yes
    "$("$root/tests/setup/find-python.sh" 3.13)" "$here/defences.py" --list "$here/cache.toml" || failed="$failed cache"
fi

if [ -z "$known" ]; then
    echo "no part $wanted; see $0" >&2
    exit 1
fi
if [ -n "$failed" ]; then
    echo "these have mutants that no test notices:$failed; see $made/*/mutants.out/missed.txt" >&2
    exit 1
fi
