#!/usr/bin/env bash
# Runs a fuzz target: run.sh TARGET SECONDS. Minimizes its corpus: run.sh TARGET keep. Prints the
# coverage of its corpus as a row of a table: run.sh TARGET coverage. An empty TARGET means all.
# README.md in this folder says more.
set -eu
wanted=${1?which target? none is all; each folder in tests/fuzz/*/corpus is one}
what=${2:?for how many seconds?}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
made=$root/build/fuzz
triple=$(rustc -vV | sed -n 's/^host: //p')

# The crate of a target: make its program, whose path is in $program.
build() {
    local name
    name=$(basename "$1")
    case $name in
    # Crates of the host's workspace share the host's target folder, so that wasmtime is built once.
    host | network | seal)
        RUSTC_WORKSPACE_WRAPPER=$here/instrument.sh \
            cargo build --release --locked --manifest-path "$root/Cargo.toml" --workspace \
            --features watm-fuzz-host/fuzzer,watm-fuzz-network/fuzzer,watm-fuzz-seal/fuzzer --bin "fuzz-$name"
        program=$root/target/release/fuzz-$name
        ;;
    # --target separates build scripts from the fuzzed code.
    *)
        RUSTC_WRAPPER=$here/instrument.sh CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_PROFILE_DEV_DEBUG=line-tables-only \
            cargo build --locked --manifest-path "$1/Cargo.toml" --features fuzzer --bin fuzz \
            --target "$triple" --target-dir "$made/target/$name"
        program=$made/target/$name/$triple/debug/fuzz
        ;;
    esac
}

# The longest input in bytes, by target.
longest() {
    case $1 in
    module) echo $((16 << 20)) ;;
    grants | recording | serve-config) echo 65536 ;;
    component-calls | water-calls) echo 4000 ;;
    shapes) echo 100 ;;
    http) echo 20000 ;;
    registry) echo 8000 ;;
    *) echo 1500 ;;
    esac
}

fuzz() {
    local options=(-max_total_time="$what" -timeout=60 -rss_limit_mb=1500 -max_len="$(longest "$target")"
        -artifact_prefix="$made/failures/$target-")
    if [ -e "$here/$target.dict" ]; then options+=(-dict="$here/$target.dict"); fi
    nice -n 10 "$program" "${options[@]}" "$found" "$corpus"
}

# Keeps the fewest inputs that reach every edge of all of them, and those with names of their own.
keep() {
    rm -rf "$made/kept"
    mkdir "$made/kept"
    "$program" -set_cover_merge=1 -use_counters=0 -max_len="$(longest "$target")" "$made/kept" "$corpus" "$found"
    find "$corpus" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    find "$made/kept" -type f -exec cp -t "$corpus" {} +
}

# The edges that the inputs of the corpus reach, of those in the crates with counters. It runs each
# input once.
coverage() {
    local said
    said=$("$program" -runs=0 -max_len="$(longest "$target")" -rss_limit_mb=4000 "$corpus" 2>&1)
    printf '| `%s` | %s | %s | %s |\n' "$target" "$(find "$corpus" -type f | wc -l)" \
        "$(sed -n 's/.*INITED *cov: \([0-9]*\) .*/\1/p' <<<"$said")" \
        "$(sed -n 's/.*(\([0-9]*\) inline 8-bit counters).*/\1/p' <<<"$said")"
}

targets=$(ls -d "$here"/*/corpus/${wanted:-*} 2>/dev/null) || {
    echo "no target $wanted; there are: $(ls "$here"/*/corpus | grep -v : | xargs)" >&2
    exit 1
}
mkdir -p "$made/failures"
built=
for corpus in $targets; do
    target=$(basename "$corpus")
    crate=$(dirname "$(dirname "$corpus")")
    if [ "$crate" != "$built" ]; then build "$crate"; fi
    built=$crate
    found=$made/found/$target
    mkdir -p "$found"
    export FUZZ_TARGET=$target
    case $what in
    keep) keep ;;
    coverage) coverage ;;
    *) fuzz ;;
    esac
done
