#!/usr/bin/env bash
# Fuzz a target: run.sh TARGET SECONDS, or keep what was found: run.sh TARGET keep.
# README.md beside this file says more.
set -eu
target=${1:?which target? each folder in tests/fuzz/*/corpus is one}
what=${2:?for how many seconds?}
here=$(cd "$(dirname "$0")" && pwd)
made=$(dirname "$(dirname "$here")")/build/fuzz

corpus=$(ls -d "$here"/*/corpus/"$target" 2>/dev/null) || {
    echo "no target $target; there are: $(ls "$here"/*/corpus | grep -v : | xargs)" >&2
    exit 1
}
crate=$(dirname "$(dirname "$corpus")")
triple=$(rustc -vV | sed -n 's/^host: //p')

# With --target, what the build itself runs is told apart from what is to be fuzzed.
RUSTC_WRAPPER=$here/instrument.sh CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_PROFILE_DEV_DEBUG=line-tables-only \
    cargo build --locked --manifest-path "$crate/Cargo.toml" --features fuzzer --bin fuzz \
    --target "$triple" --target-dir "$made/target/$(basename "$crate")"
program=$made/target/$(basename "$crate")/$triple/debug/fuzz

found=$made/found/$target
mkdir -p "$found" "$made/failures"
export FUZZ_TARGET=$target
if [ "$what" = keep ]; then
    # The fewest inputs that reach every edge that all of them together do. Those with
    # names of their own stay.
    rm -rf "$made/kept"
    mkdir "$made/kept"
    "$program" -set_cover_merge=1 -use_counters=0 "$made/kept" "$corpus" "$found"
    find "$corpus" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    cp "$made"/kept/* "$corpus"
    exit
fi
dictionary=$here/$target.dict
options=(-max_total_time="$what" -timeout=20 -rss_limit_mb=1500 -max_len=1500
    -artifact_prefix="$made/failures/$target-")
if [ -e "$dictionary" ]; then options+=(-dict="$dictionary"); fi
exec nice -n 10 "$program" "${options[@]}" "$found" "$corpus"
