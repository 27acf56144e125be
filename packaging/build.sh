#!/usr/bin/env bash
# Builds for another machine, with zig as its C compiler and linker: build.sh wheel|program TARGET
#
# In build/dist-tools is what packaging/requirements.txt names. The same sources give the same bytes: no path of
# this machine and no time of day is in them.
set -eu
cd "$(dirname "$0")/.."

what=$1 target=$2
tools=$PWD/build/dist-tools/bin
export PATH="$tools:$PATH"
export CARGO_TARGET_DIR=$PWD/build/dist-target
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(packaging/date.sh)}
export ZERO_AR_DATE=1
# The root that the packaged modules are sealed under.
export WATM_BUILT_IN_ROOT=$PWD/host-python/python/mitmproxy_watm/modules/root.watm

flags=(
    "--remap-path-prefix=$PWD=/watm"
    "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    "--remap-path-prefix=$(rustc --print sysroot)=/rust"
)
case $target in
*-apple-darwin)
    "$tools/python" packaging/frameworks.py build/frameworks
    flags+=("-Clink-arg=-F$PWD/build/frameworks")
    export MACOSX_DEPLOYMENT_TARGET=11.0
    ;;
esac
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}

rustup target add "$target"
case $what in
wheel)
    case $target in
    *-linux-gnu) tag=manylinux2014 ;;
    *-linux-musl) tag=musllinux_1_2 ;;
    *) tag=off ;;
    esac
    maturin build --profile dist --locked --zig --target "$target" --compatibility "$tag" \
        -m host-python/Cargo.toml -o dist
    ;;
program)
    cargo zigbuild --profile dist --locked --target "$target" -p watm --bin watm
    ;;
*)
    echo "build.sh: wheel or program, not $what" >&2
    exit 2
    ;;
esac
