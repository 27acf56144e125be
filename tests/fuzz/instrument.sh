#!/bin/sh
# rustc with libFuzzer's instrumentation (counters of edges, operands of comparisons) in the crates that
# read input of strangers. Ciphers and compilers would only be slow. Programs that the build itself runs
# are compiled without --target, and stay as they are.
rustc=$1
shift
case " $* " in
*" --crate-name watm_"* | *" --crate-name targets "* | *" --crate-name fuzz"*) ;;
*" --crate-name boringtun "*" --target "* | *" --crate-name smoltcp "*" --target "* | \
    *" --crate-name serde_json "*" --target "*) ;;
*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" -Cdebug-assertions=on -Coverflow-checks=on -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
