#!/bin/sh
# rustc, as cargo calls it for the project's own crates: makes the program `watm` static. Only the link differs, so the
# program and a library that shares Python's musl are made of one build.
case " $* " in
*" --crate-name watm "*" --crate-type bin "*) exec "$@" -Ctarget-feature=+crt-static ;;
*) exec "$@" ;;
esac
