#!/usr/bin/env bash
# Links for macOS with LLVM's linker, which comes with Rust. rustc calls it as it would call Apple's.
#
# zig's linker would write every function of a library into its table of exports, a sixth of a wheel. This one keeps to
# rustc's list. Its libraries are the stubs of stubs.py. Names of functions are left out (-x), because rustc has no strip
# for this system here. A program exports none, and equal functions are one.
set -eu
arguments=() names=(-no_exported_symbols)
for argument; do
    case $argument in
    # As a compiler driver passes it on.
    -Wl,*)
        IFS=, read -ra split <<<"${argument#-Wl,}"
        arguments+=("${split[@]}")
        ;;
    # A library's own list of exports follows.
    -dylib) arguments+=("$argument") names=() ;;
    *) arguments+=("$argument") ;;
    esac
done
exec "$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin/rust-lld" "${arguments[@]}" \
    -adhoc_codesign -dead_strip_dylibs --icf=safe -x "${names[@]}"
