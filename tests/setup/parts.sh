#!/usr/bin/env bash
# Run make targets one after another, and note in build/parts how long each takes.
# Usage: parts.sh TARGET…
set -eu

# `make -n` runs this script too, to show the commands.
flags=${MAKEFLAGS-}
case ${flags%% *} in -*) ;; *n*) exec ${MAKE:-make} --no-print-directory "$@" ;; esac

for target in "$@"; do
    begin=$SECONDS status=0
    ${MAKE:-make} --no-print-directory "$target" || status=$?
    printf '%6d s  %s%s\n' $((SECONDS - begin)) "$target" "$([ $status = 0 ] || echo " (failed)")" >>build/parts
    [ $status = 0 ] || exit $status
done
