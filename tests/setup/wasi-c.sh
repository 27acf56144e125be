#!/usr/bin/env bash
# Build a C program for WASI 0.2: SOURCE to OUTPUT. The C library is wasi-libc, as in wasi-sdk: the copy of Rust's
# target wasm32-wasip2, with headers from Debian.
set -eu

source=$1
output=$2
HEADERS=/usr/include/wasm32-wasi
"$(dirname "$0")/apt.sh" need clang $HEADERS/stdio.h

rust=$(rustc --print sysroot)/lib/rustlib
tools=$(echo "$rust"/*/bin/wasm-component-ld)
library=$rust/wasm32-wasip2/lib
object=$output.o
clang --target=wasm32-wasi -O2 -Wall -Wextra -Werror -isystem $HEADERS -c "$source" -o "$object"
PATH=$(dirname "$tools")/gcc-ld:$PATH "$tools" -o "$output" "$library/self-contained/crt1-command.o" "$object" \
    "$library/self-contained/libc.a" "$library"/libcompiler_builtins-*.rlib
rm "$object"
