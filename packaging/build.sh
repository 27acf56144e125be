#!/usr/bin/env bash
# Builds for another machine, with zig as its C compiler and, but for macOS, its linker: build.sh program|library|both TARGET
#
# The program is `watm`, and the library is the native half of the Python package. They share one build of what they
# depend on, and `both` makes them at once.
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

# A time in C sources is the one above, so it is no reason to refuse them, as zig does.
export "CFLAGS_${target//-/_}=-Wno-error=date-time"
# An extension module is not linked to a Python, and none of this machine's is asked.
export PYO3_BUILD_EXTENSION_MODULE=1 PYO3_NO_PYTHON=1

flags=(
    "--remap-path-prefix=$PWD=/watm"
    "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    "--remap-path-prefix=$(rustc --print sysroot)=/rust"
)
case $target in
*-apple-darwin)
    "$tools/python" packaging/stubs.py build/macos-stubs
    name=${target//-/_}
    export "CARGO_TARGET_${name^^}_LINKER=$PWD/packaging/link-macos.sh"
    flags+=("-Clinker-flavor=ld64.lld")
    export MACOSX_DEPLOYMENT_TARGET=11.0 SDKROOT=$PWD/build/macos-stubs
    ;;
*-linux-musl)
    flags+=("-Ctarget-feature=-crt-static")
    # By its name alone: cargo makes it a part of the names of crates.
    export PATH="$PWD/packaging:$PATH" RUSTC_WORKSPACE_WRAPPER=rustc-static.sh
    ;;
esac
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}

rustup target add "$target"
program=(-p watm --bin watm)
library=(-p watm-python --features watm-python/wheel --lib)
case $what in
program) chosen=("${program[@]}") ;;
library) chosen=("${library[@]}") ;;
both) chosen=("${program[@]}" "${library[@]}") ;;
*)
    echo "build.sh: program, library or both, not $what" >&2
    exit 2
    ;;
esac
# The oldest glibc that has what Rust's library needs.
cargo zigbuild --profile dist --locked --target "${target/%-gnu/-gnu.2.17}" "${chosen[@]}"
