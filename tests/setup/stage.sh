#!/usr/bin/env bash
# Run a command, and print what it is for and how long it took. Usage: stage.sh WHAT COMMAND…
set -eu

what=$1
shift
begin=$SECONDS
echo "… $what" >&2
"$@"
printf '%4d s  %s\n' $((SECONDS - begin)) "$what" >&2
